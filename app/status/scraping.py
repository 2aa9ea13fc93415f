"""Metrics for Prometheus: those of this process, and facts of the database, which are read at most once a second."""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import psycopg
import sqlalchemy as sa
import structlog
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy.ext.asyncio import AsyncEngine

from app.status.measuring import Facts, Sample, read_facts
from app.telemetry import metric_list
from app.telemetry.metric_list import DATABASE_UP, OF_FACTS, STATE_BYTES

FACTS_FOR_S = 1.0
# A scrape that takes longer than the timeout of Prometheus (10 s by default) yields nothing.
DATABASE_PATIENCE_S = 3.0
# Walking a directory of a thousand files takes some 5 ms.
SIZES_FOR_S = 30.0
log = structlog.stdlib.get_logger(__name__)


class Scraper(Collector):
    """Answers scrapes; one per application.

    Args:
        checkpoints_dir: directory of the queries' state, if they run on this machine.
    """

    def __init__(self, engine: AsyncEngine, registry: CollectorRegistry, checkpoints_dir: Path) -> None:
        self._engine = engine
        self._process = registry
        self._checkpoints_dir = checkpoints_dir
        self._facts: Facts | None = None
        self._sizes: list[Sample] = []
        self._read_at = self._sized_at = float("-inf")
        self._reading = asyncio.Lock()
        self._database_registry = CollectorRegistry()
        self._database_registry.register(self)

    async def scrape(self) -> bytes:
        """Return all metrics in Prometheus' text form. If the database is not reachable, its metrics are left out."""
        async with self._reading:
            if time.monotonic() - self._read_at >= FACTS_FOR_S:
                self._facts = await self._read()
                self._read_at = time.monotonic()
        return generate_latest(self._process) + generate_latest(self._database_registry)

    async def _read(self) -> Facts | None:
        try:
            async with asyncio.timeout(DATABASE_PATIENCE_S), self._engine.connect() as connection:
                facts = await read_facts(connection)
        except (sa.exc.SQLAlchemyError, psycopg.Error, OSError) as error:
            log.warning("facts_not_read", error=type(error).__name__)
            return None
        if time.monotonic() - self._sized_at >= SIZES_FOR_S:
            paths = {query: self._checkpoints_dir / directory for query, directory in facts.directories.items()}
            self._sizes = await asyncio.to_thread(_sizes, paths)
            self._sized_at = time.monotonic()
        return facts

    def collect(self) -> Iterator[Metric]:
        by_metric: dict[metric_list.Metric, list[Sample]] = defaultdict(list)
        known = [] if self._facts is None else [*self._facts.samples, *self._sizes]
        for sample in ((DATABASE_UP, (), float(self._facts is not None)), *known):
            by_metric[sample[0]].append(sample)
        for metric in (DATABASE_UP, *OF_FACTS):
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(metric.name, metric.help, labels=metric.labels)
            for _, labels, value in by_metric[metric]:
                family.add_metric(labels, value)
            yield family


def _sizes(paths: dict[str, Path]) -> list[Sample]:
    return [(STATE_BYTES, (query,), _size(path)) for query, path in paths.items() if path.is_dir()]


def _size(directory: Path) -> int:
    """Return the bytes below a directory. Files that disappear meanwhile count 0."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118 - thousands of files
            except FileNotFoundError:
                continue
    return total

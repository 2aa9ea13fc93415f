"""Metrics for Prometheus: those of this process, and facts of the database, which are read at most once a second."""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa
import structlog
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as MetricFamily
from prometheus_client.registry import Collector
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.access.scopes import PREFIX
from app.catalog.deliveries.rules import DeliveryFacts, delivery_state
from app.catalog.deliveries.sql import all_deliveries
from app.status.limiting import PARTS
from app.telemetry import metric_list as metrics
from app.telemetry.metric_list import DATABASE_UP, OF_FACTS, STATE_BYTES, Metric
from engine.definition.sources.connector import LOG_PREFIX
from engine.definition.sources.connector_list import MODELS

Json = dict[str, Any]
Sample = tuple[Metric, tuple[str, ...], float]
"""A metric, the values of its labels in their order, its value."""

_QUERIES = sa.text(
    """
    SELECT q.name, q.id::text || '/' || q.checkpoint_id::text AS state_directory,
        s.state, s.epoch, s.attempt, c.batch_id, c.stream_time_ms, c.detail,
        extract(epoch FROM clock_timestamp() - c.committed_at)::double precision AS commit_age_s,
        (SELECT jsonb_agg(jsonb_build_array(n.input, n.reason, n.count)) FROM log.counter n WHERE n.owner = q.id) AS counters
    FROM slackwater.query q JOIN slackwater.query_status s ON s.query_id = q.id
    LEFT JOIN log.commit c ON c.query_id = q.id AND c.checkpoint_id = q.checkpoint_id
    WHERE q.deleted_at IS NULL
    """
)
# The batch with the first unread offset is the one with the greatest base up to it: one step down the primary key.
_LAGS_AND_DRIVERS = sa.text(
    """
    WITH place AS (
        SELECT q.name AS query, p.feed, h.feed_id, h.partition, o.value::bigint AS next, f.next_sequence IS NOT NULL AS is_derived,
            coalesce(f.next_sequence, h.next_offset) - o.value::bigint AS lag, h.open_since
        FROM slackwater.query q JOIN log.commit c ON c.query_id = q.id AND c.checkpoint_id = q.checkpoint_id
        CROSS JOIN LATERAL jsonb_each(c.position) AS p(feed, partitions)
        CROSS JOIN LATERAL jsonb_each_text(p.partitions) AS o(partition, value)
        JOIN log.feed f ON f.name = CASE WHEN starts_with(p.feed, CAST(:own AS text)) THEN substr(p.feed, length(CAST(:own AS text)) + 1)
            ELSE p.feed END
        JOIN log.head h ON h.feed_id = f.id AND h.partition = o.partition::integer
        WHERE q.deleted_at IS NULL AND split_part(p.feed, ':', 1) = ANY(:headed)
    ), lag AS (
        SELECT query, feed, sum(greatest(lag, 0)) AS records,
            coalesce(max(extract(epoch FROM clock_timestamp() - (
                CASE WHEN is_derived THEN (
                    SELECT b.appended_at FROM log.batch b WHERE b.feed_id = place.feed_id AND b.sequence <= place.next
                    ORDER BY b.sequence DESC LIMIT 1
                ) ELSE (
                    SELECT b.appended_at FROM log.batch b WHERE b.feed_id = place.feed_id AND b.partition = place.partition
                    AND b.base_offset <= place.next ORDER BY b.base_offset DESC LIMIT 1
                ) END))) FILTER (WHERE lag > 0), 0) AS seconds,
            coalesce(max(extract(epoch FROM clock_timestamp() - open_since)), 0) AS held_back_seconds
        FROM place GROUP BY query, feed
    ), fleet AS (
        SELECT d.id, d.phase, (d.detail ->> 'max_queries')::integer AS most,
            extract(epoch FROM clock_timestamp() - d.heartbeat_at) AS age_s,
            (SELECT count(*) FROM slackwater.query_status s JOIN slackwater.query q ON q.id = s.query_id
                WHERE s.lease_owner = d.id AND NOT starts_with(q.name, :prefix)) AS held
        FROM slackwater.driver d
    )
    SELECT (SELECT jsonb_agg(jsonb_build_array(query, feed, records, seconds, held_back_seconds)) FROM lag),
        (SELECT jsonb_agg(jsonb_build_array(id, phase, held, most, age_s)) FROM fleet)
    """
)


@dataclass(frozen=True, slots=True)
class Facts:
    """Metrics of the database at one moment.

    Attributes:
        directories: query → directory of its state, below the directory of checkpoints; its size is not in the database.
    """

    samples: list[Sample]
    directories: dict[str, str] = field(default_factory=dict)


async def read_facts(connection: AsyncConnection) -> Facts:
    """Return samples of every metric whose value is in the database."""
    rows = (await connection.execute(_QUERIES)).mappings().all()
    headed = [name for name, model in MODELS.items() if model.traits.has_heads]
    lags, drivers = (await connection.execute(_LAGS_AND_DRIVERS, {"prefix": PREFIX, "own": LOG_PREFIX, "headed": headed})).one()
    samples = [sample for row in rows for sample in _of_query(row["name"], dict(row))]
    states = [row["state"] for row in rows]
    samples += [(metrics.QUERIES, (state,), states.count(state)) for state in set(states)]
    for query, feed, records, seconds, held_back_s in lags or ():
        samples.append((metrics.LAG, (query, feed), records))
        # For records outside the log, their arrival is unknown; and open transactions never hold back records of the log.
        metric, value = (
            (metrics.LAG_SECONDS, seconds) if feed.startswith(LOG_PREFIX) else (metrics.HELD_BACK_SECONDS, held_back_s)
        )
        samples.append((metric, (query, feed), value))
    for driver, phase, query_count, most, age_s in drivers or ():
        samples += [(metrics.DRIVER_QUERIES, (driver,), query_count), (metrics.DRIVER_HEARTBEAT, (driver, phase), age_s)]
        samples += [] if most is None else [(metrics.DRIVER_MAX, (driver,), most)]
    samples += [sample for each in await all_deliveries(connection) for sample in _of_delivery(each)]
    return Facts(samples, {row["name"]: row["state_directory"] for row in rows})


def _of_query(name: str, row: Json) -> Iterator[Sample]:
    yield metrics.QUERY_STATE, (name, row["state"]), 1
    yield metrics.LAUNCHES, (name,), row["epoch"]
    yield metrics.ATTEMPT, (name,), row["attempt"]
    for input_name, reason, count in row["counters"] or ():
        yield metrics.COUNTED, (name, input_name, reason), count
    if row["batch_id"] is not None:
        yield metrics.BATCHES, (name,), row["batch_id"] + 1
        yield metrics.COMMIT_AGE, (name,), row["commit_age_s"]
        yield from _of_detail(name, row["detail"])
    if row["stream_time_ms"] is not None:
        yield metrics.STREAM_TIME, (name,), row["stream_time_ms"] / 1000


def _of_delivery(facts: DeliveryFacts) -> Iterator[Sample]:
    labels = (facts.query,)
    yield metrics.DELIVERY_STATE, (facts.query, delivery_state(facts)[0]), 1
    yield metrics.DELIVERY_LAG, labels, facts.lag_rows
    yield metrics.DELIVERY_LAG_SECONDS, labels, facts.waited_s or 0.0
    yield metrics.DELIVERED, labels, facts.delivered_rows
    yield metrics.DELIVERY_FAILURES, labels, facts.failures


def _of_detail(name: str, detail: Json) -> Iterator[Sample]:
    """Yield what the sink recorded with the last commit."""
    yield metrics.EMITTED, (name,), detail.get("emitted_rows", 0)
    for feed, rows in detail.get("read_rows", {}).items():
        yield metrics.READ, (name, feed), rows
    for phase, ms in detail.get("phases_ms", {}).items():
        yield metrics.PHASE, (name, phase), ms / 1000
    shares = detail.get("execution", {}).get("shares", {})
    yield from ((metrics.BUSY, (name, part), shares[part]) for part in PARTS if part in shares)
    yield from ((metrics.FUNCTION, (name, function), share) for function, share in shares.get("functions", {}).items())
    for metric, part in ((metrics.BUFFERED, "buffered"), (metrics.BUFFERED_BYTES, "buffered_bytes")):
        for operator, tasks in detail.get(part, {}).items():
            yield metric, (name, operator), sum(tasks.values())
    clocks = detail.get("clocks", {})
    yield from ((metrics.CLOCK, (name, operator), clock / 1000) for operator, clock in clocks.items())
    for operator, tasks in detail.get("oldest_ms", {}).items():
        if operator in clocks and tasks:
            yield metrics.OLDEST, (name, operator), (clocks[operator] - min(tasks.values())) / 1000


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

    def collect(self) -> Iterator[MetricFamily]:
        by_metric: dict[Metric, list[Sample]] = defaultdict(list)
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

"""Reads by key of the very table that a query on Spark writes meanwhile, 20,000 records a second, everything on this machine.

Records come as files, one a second, made beforehand. What the query really took in is counted in the table: where it is less than was
offered, the machine was too busy for the figure to say anything.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

from engine.postgres.links import LinkedConnection
from tests.bench.load import Answered, Load, put
from tests.bench.service import Service, fresh_service

RECORDS_PER_SECOND = 20_000
KEYS = 10_000
WARM_FILES = 5
"""Read before anything is measured: the first batch starts workers."""

READY_SECONDS = 180.0
BASE_MS = 1_400_000_000_000
COLUMNS = {"item": "bigint", "price": "double", "sold_at": "bigint"}
TOTALS: dict[str, Any] = {
    "name": "totals",
    "from": {"stream": "items"},
    "group_by": ["item"],
    "aggregate": {"sold": "count(*)", "income": "sum(price)"},
    "into": {"table": "totals"},
}


@dataclass(frozen=True, slots=True)
class Ingesting:
    """Figures while a query takes records in.

    Attributes:
        ingested_per_second: records in the table's sums at the end less those at the begin.
    """

    answered: Answered
    ingested_per_second: float


def while_ingesting(console: Console, work: Path, rounds: int, seconds: float) -> list[Ingesting]:
    """Start the whole service, feed it and read."""
    work.mkdir(parents=True, exist_ok=True)
    staged, watched = work / "staged", work / "items"
    staged.mkdir()
    watched.mkdir()
    warm_seconds = 1.0
    files = _stage(staged, WARM_FILES + int(rounds * (seconds + warm_seconds + 3)) + 20)
    with fresh_service(work) as service:
        service.client.stream("items").register({
                "key": ["item"], "columns": COLUMNS, "event_time": "sold_at",
                "connector": {"type": "files", "path": str(watched), "format": "ndjson"},
            })  # fmt: skip
        service.client.queries.put(TOTALS)
        for _ in range(WARM_FILES):
            _publish(files.pop(), watched)
        _wait_until_ingested(service, WARM_FILES * RECORDS_PER_SECOND)
        feeder = _Feeder(files, watched)
        feeder.start()
        try:
            found = [_measure(service, seconds, warm_seconds) for _ in range(rounds)]
        finally:
            feeder.stop()
    show(console, found)
    return found


def _measure(service: Service, seconds: float, warm_seconds: float) -> Ingesting:
    paths = tuple(f"/v1/tables/totals/rows/{key}" for key in range(KEYS))
    before, begun = _ingested(service.dsn), time.monotonic()
    answered = put(Load(service.port, paths, seconds=seconds, warm_seconds=warm_seconds))
    return Ingesting(answered, (_ingested(service.dsn) - before) / (time.monotonic() - begun))


class _Feeder(threading.Thread):
    """Publishes a file a second, on time even after a pause."""

    def __init__(self, files: list[Path], watched: Path) -> None:
        super().__init__(daemon=True)
        self._files = files
        self._watched = watched
        self._stopped = threading.Event()

    def run(self) -> None:
        due = time.monotonic()
        while self._files and not self._stopped.wait(max(0.0, due - time.monotonic())):
            _publish(self._files.pop(), self._watched)
            due += 1.0

    def stop(self) -> None:
        self._stopped.set()
        self.join()


def _stage(staged: Path, number: int) -> list[Path]:
    """Write the files and return them, the first one last."""
    generator = np.random.default_rng(7)
    files = []
    for place in range(number):
        path = staged / f"{place:05d}.ndjson"
        times = BASE_MS + place * 1_000 + np.arange(RECORDS_PER_SECOND) * 1_000 // RECORDS_PER_SECOND
        keys = generator.integers(0, KEYS, RECORDS_PER_SECOND)
        pl.DataFrame({"item": keys, "price": np.ones(RECORDS_PER_SECOND), "sold_at": times}).write_ndjson(path)
        files.append(path)
    return files[::-1]


def _publish(path: Path, watched: Path) -> None:
    path.rename(watched / path.name)


def _ingested(dsn: str) -> int:
    with LinkedConnection.connect(dsn) as connection:
        row = connection.execute("SELECT coalesce(sum(sold), 0)::bigint FROM views.totals").fetchone()
    return 0 if row is None else int(row[0])


def _wait_until_ingested(service: Service, records: int) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while _ingested(service.dsn) < records:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"{_ingested(service.dsn)} of {records} records after {READY_SECONDS} s: {service.client.query('totals').status()}"
            )
        time.sleep(0.2)


def show(console: Console, found: Sequence[Ingesting]) -> None:
    """Print the medians."""
    table = Table(title=f"Reads by key while a query takes in {RECORDS_PER_SECOND:,} records/s, medians of {len(found)} rounds")
    for name in ("answers/s", "p50 ms", "p99 ms", "429", "longest gap ms", "ingested/s"):
        table.add_column(name, justify="right")
    median = statistics.median
    table.add_row(
        f"{median(one.answered.per_second for one in found):,.0f}",
        f"{median(one.answered.p50_ms for one in found):.1f}",
        f"{median(one.answered.p99_ms for one in found):.1f}",
        f"{median(one.answered.refused_share for one in found):.0%}",
        f"{max(one.answered.longest_gap_ms for one in found):.0f}",
        f"{median(one.ingested_per_second for one in found):,.0f}",
    )
    console.print(table)

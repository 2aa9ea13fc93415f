"""Bids → filter by price into a derived stream → final counts per bidder over that; beside it the same in one query (P2, P4).

Both must give exactly what the merge of the log counts, so each must give what the other gives: with everything in the log before the queries
start, with the first query paused over half of it, and live. Live, the log grows in steps of one event time, so that the order in which
queries find the records is that of the merge, however they are cut (T2).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table
from slackwater import Json

from engine.log.storage import append_batches, encode_batch
from engine.postgres.links import LinkedConnection
from tests.bench.jobs import BID, TASKS, WINDOW_GRACE_MS, WINDOW_MS, count_query, final_counts, register
from tests.bench.oracle import Finals, compare_finals, merge, merged_counts
from tests.bench.service import Service, await_driver, fresh_service
from tests.bench.sources import Layout, LogSource, feed_of, logged

LEAST_PRICE = 10_000
"""Two thirds of the bids are above it."""

STEPS = 60
STEP_S = 0.5
READ_S = 900.0
POLL_S = 0.2
KEY = "bidder"
QUERIES: Final[tuple[Json, ...]] = (
    {
        "name": "dear", "from": {"stream": "bids"}, "tasks": TASKS, "where": f"price >= {LEAST_PRICE}",
        "select": {name: f"bids.{name}" for name in BID if name != "ts"}, "into": {"stream": "dear"},
    },
    count_query("chained", "dear", KEY),
    count_query("alone", "bids", KEY, where=f"price >= {LEAST_PRICE}"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Chained:
    """Both results of one run.

    Attributes:
        way: how the queries came to their records.
        unlike: windows in which the two differ.
    """

    way: str
    records: int
    seconds: float
    chained: Finals
    alone: Finals
    unlike: int

    @property
    def is_exact(self) -> bool:
        return self.chained.is_exact and self.alone.is_exact and not self.unlike


def backlog(size: str, layout: Layout, work: Path) -> Chained:
    """Everything is in the log before the queries start."""

    def run(service: Service, source: LogSource) -> None:
        source.fill(service.dsn, "bids")
        _start(service)

    name = "backlog" if layout == "even" else f"backlog, one partition {layout}"
    return _run(name, LogSource(size, layout), work, run)


def paused(size: str, work: Path) -> Chained:
    """The first query rests while the second half comes, and the other one reads it."""

    def run(service: Service, source: LogSource) -> None:
        steps = _steps(source.partitions("bids"))
        _append(service, steps[: STEPS // 2])
        _start(service)
        _await_read(service)
        _desired_state(service, "paused")
        _append(service, steps[STEPS // 2 :])
        _await_read(service, ["alone"])
        _desired_state(service, "running")

    return _run("first query paused over half", LogSource(size), work, run)


def live(size: str, work: Path) -> Chained:
    """The queries run while the records come."""

    def run(service: Service, source: LogSource) -> None:
        _start(service)
        _append(service, _steps(source.partitions("bids")), STEP_S)

    return _run("live", LogSource(size), work, run)


CHAINS: Final[dict[str, Callable[[str, Path], Chained]]] = {
    "chain-backlog": lambda size, work: backlog(size, "even", work),
    "chain-huge": lambda size, work: backlog(size, "huge", work),
    "chain-behind": lambda size, work: backlog(size, "behind", work),
    "chain-quiet": lambda size, work: backlog(size, "paused", work),
    "chain-paused": paused,
    "chain-live": live,
}


def show(console: Console, size: str, runs: Sequence[Chained]) -> None:
    """Print the runs as one table, a row for each of the two results."""
    table = Table(title=f"NX-T {size}: bids above a price in final counts per {KEY}, against the merge's own count")
    for column in ("way", "queries", "records", "seconds", "finals", "equal", "wrong", "missing", "extra"):
        table.add_column(column, justify="left" if column in ("way", "queries") else "right")
    for run in runs:
        for name, finals in (("filter, count", run.chained), ("one query", run.alone)):
            share = f"{int(finals.share * 10_000) / 100:.2f} %"
            counts = [f"{number:,}" for number in (finals.wrong, finals.missing, finals.extra)]
            table.add_row(run.way, name, f"{run.records:,}", f"{run.seconds:.1f}", f"{finals.expected:,}", share, *counts)
    console.print(table)


def _run(way: str, source: LogSource, work: Path, run: Callable[[Service, LogSource], None]) -> Chained:
    with fresh_service(work) as service:
        register(service.client, "streams", "bids", BID, source.connector("bids"), source.dating)
        await_driver(service)
        begun = time.monotonic()
        run(service, source)
        _await_read(service)
        seconds = time.monotonic() - begun
        found = [final_counts(service.dsn, name, KEY) for name in ("chained", "alone")]
    merged = merge(source.partitions("bids"))
    expected = merged_counts(merged, KEY, WINDOW_MS, WINDOW_GRACE_MS, pl.col("price") >= LEAST_PRICE)
    chained, alone = (compare_finals(each, expected) for each in found)
    differing = compare_finals(*found)
    unlike = differing.wrong + differing.missing + differing.extra
    return Chained(way, merged.height, seconds, chained, alone, unlike)


def _start(service: Service) -> None:
    for query in QUERIES:
        service.client.queries.put(query)


def _desired_state(service: Service, state: str) -> None:
    service.client.call("PUT", "/v1/queries/dear/desired-state", {"state": state})
    service.client.query("dear").status(wait_for=state, timeout=60)


def _steps(partitions: Sequence[pl.DataFrame]) -> list[list[tuple[int, pl.DataFrame]]]:
    """Cut partitions at event times: what lies before each, of every partition."""
    heads = [part.get_column("ts").cum_max().to_numpy() for part in partitions]
    times = np.quantile(np.concatenate(heads), np.linspace(0, 1, STEPS + 1)[1:-1])
    ends = [[0, *np.searchsorted(head, times), len(head)] for head in heads]
    return [
        [
            (number, part.slice(ends[number][step], ends[number][step + 1] - ends[number][step]))
            for number, part in enumerate(partitions)
        ]
        for step in range(STEPS)
    ]


def _append(service: Service, steps: Sequence[Sequence[tuple[int, pl.DataFrame]]], pause_s: float = 0.0) -> None:
    with LinkedConnection.connect(service.dsn, autocommit=True) as connection:
        feed_id = feed_of(connection, "bids")
        for step in steps:
            batches = [(number, encode_batch(logged(part), 0)) for number, part in step if part.height]
            with connection.transaction():
                append_batches(connection, feed_id, batches)
            time.sleep(pause_s)


def _await_read(service: Service, queries: Sequence[str] = tuple(query["name"] for query in QUERIES)) -> None:
    """Wait until queries have read everything; each is asked behind those whose results it reads.

    Raises:
        RuntimeError: one failed, or it takes too long.
    """
    deadline = time.monotonic() + READ_S
    while not all(_is_read(service, query) for query in queries):
        if time.monotonic() > deadline:
            raise RuntimeError(f"{', '.join(queries)} have not read everything within {READ_S:.0f} s")
        time.sleep(POLL_S)


def _is_read(service: Service, query: str) -> bool:
    status = service.client.query(query).status()
    if status["state"] == "failed":
        raise RuntimeError(f"{query} failed: {status['error']}")
    lags = [part["lag"] for feed in status["progress"] for part in feed["partitions"]]
    return bool(lags) and not any(lags)

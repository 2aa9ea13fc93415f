"""The timed jobs: J1 joins bids to the versioned table, J2 counts them per key in final windows of 10 s."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import psycopg
from psycopg import sql

from app.client import Client, Json
from engine.connectors.log import read_feed
from tests.bench.meter import TreeMeter
from tests.bench.oracle import judge_join, judge_windows
from tests.bench.service import Service, fresh_service

WINDOW_MS = 10_000
WINDOW_GRACE_MS = 5_000
POLL_SECONDS = 0.2
JOB_SECONDS = 600.0
BID = {"auction": "bigint", "price": "bigint", "bidder": "bigint", "ts": "bigint", "n": "bigint"}
VERSION = {"auction": "bigint", "version": "bigint", "ts": "bigint"}


@dataclass(frozen=True, slots=True)
class Measured:
    """One run.

    Attributes:
        records: input records read, of all inputs.
        seconds: from the commit before the first records to the last commit.
        seconds_with_start: from POST of the query to the last commit.
        wrong_or_missing: joined bids with another version than the true one; 0 for windows.
        answers: what the answers are worth, in words.
    """

    job: str
    records: int
    seconds: float
    seconds_with_start: float
    cpu_seconds: float
    peak_bytes: int
    wrong_or_missing: int
    answers: str

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds


def join_two_inputs(size: str, folders: dict[str, Path], work: Path, grace_s: int) -> Measured:
    """J1: two directories, four tasks, merged by event time."""
    with fresh_service(work) as service:
        _register(service.client, "tables", "versions", VERSION, folders["versions"], {"versioned": {"history_retention": "1h"}})
        _register(service.client, "streams", "bids", BID, folders["bids"], {})
        run = _run(service, _join(grace_s, tasks=4), _rows(folders["versions"]) + _rows(folders["bids"]))
        return _judged_join(service, f"J1 join, grace {grace_s} s, two inputs", size, run)


def join_from_feed(size: str, folders: dict[str, Path], work: Path, grace_s: int) -> Measured:
    """J1 on one directory that holds both sides in arrival order, one task: equals the published table."""
    with fresh_service(work) as service:
        columns = {**BID, **VERSION, "kind": "string"}
        feed = folders["feed"]
        _register(
            service.client, "tables", "versions", columns, feed,
            {"versioned": {"history_retention": "1h"}}, where="kind = 'version'",
        )  # fmt: skip
        _register(service.client, "streams", "bids", columns, feed, {}, where="kind = 'bid'")
        run = _run(service, _join(grace_s, tasks=1), _rows(feed))
        return _judged_join(service, f"J1 join, grace {grace_s} s, one feed", size, run)


def count_final(size: str, folders: dict[str, Path], work: Path, key: str) -> Measured:
    """J2: final counts per key; four tasks."""
    query = {
        "name": "counts",
        "from": {"stream": "bids"},
        "tasks": 4,
        "group_by": [key],
        "window": {"type": "tumbling", "size": f"{WINDOW_MS}ms", "grace": f"{WINDOW_GRACE_MS}ms", "retention": "36500d"},
        "aggregate": {"bids": "count(*)"},
        "suppress": {"mode": "until_window_closes"},
        "into": {"table": "counts"},
    }
    with fresh_service(work) as service:
        _register(service.client, "streams", "bids", BID, folders["bids"], {})
        run = _run(service, query, _rows(folders["bids"]))
        start = sql.SQL("(extract(epoch FROM window_start) * 1000)::bigint")
        statement = sql.SQL("SELECT {}, {}, bids FROM views.counts").format(sql.Identifier(key), start)
        with psycopg.connect(service.dsn) as connection:
            rows = connection.execute(statement).fetchall()
        got = pl.DataFrame(rows, schema={"key": pl.Int64, "start": pl.Int64, "count": pl.Int64}, orient="row")
        quality = judge_windows(size, got, key, WINDOW_MS, WINDOW_GRACE_MS)
        answers = (
            f"{quality.counted:,} bids in {quality.rows:,} final windows; one task in arrival order would count "
            f"{quality.expected_counted:,} in {quality.expected_rows:,}; {quality.equal:,} equal"
        )
        return run.measured(f"J2 final count per {key}", answers)


@dataclass(frozen=True, slots=True)
class _Run:
    records: int
    seconds: float
    seconds_with_start: float
    cpu_seconds: float
    peak_bytes: int
    status: Json

    def measured(self, job: str, answers: str, wrong_or_missing: int = 0) -> Measured:
        return Measured(
            job, self.records, self.seconds, self.seconds_with_start, self.cpu_seconds, self.peak_bytes, wrong_or_missing, answers
        )


def _run(service: Service, query: Json, records: int) -> _Run:
    """Start the query and wait until it has committed everything."""
    with TreeMeter(service.pid) as meter:
        posted = time.monotonic()
        service.client.put_query(query)
        service.client.status(query["name"], wait_for="running", timeout=60)
        running = time.monotonic()
        while (status := service.client.status(query["name"]))["read_rows"] < records:
            if status["state"] == "failed" or time.monotonic() - posted > JOB_SECONDS:
                raise RuntimeError(f"{status['state']} after {status['read_rows']} of {records} records: {status['error']}")
            time.sleep(POLL_SECONDS)
        done = time.monotonic()
    return _Run(records, done - running, done - posted, meter.cpu_seconds, meter.peak_bytes, status)


def _judged_join(service: Service, job: str, size: str, run: _Run) -> Measured:
    with psycopg.connect(service.dsn) as connection:
        frame = pl.concat([frame.select("n", "version") for _, frame in read_feed(connection, "joined")])
    quality = judge_join(size, frame["n"], frame["version"])
    waiting = sum(run.status["buffered"].values())
    answers = (
        f"{quality.wrong:,} wrong, {quality.missing:,} missing of {quality.rows:,}; {quality.rows - quality.distinct:,} twice; "
        f"{quality.absent - waiting:,} lost ({waiting:,} wait)"
    )
    return run.measured(job, answers, quality.wrong + quality.missing)


def _join(grace_s: int, tasks: int) -> Json:
    return {
        "name": "joined",
        "from": {"stream": "bids"},
        "tasks": tasks,
        "joins": [{"table": "versions", "as": "v", "type": "left", "on": "bids.auction = v.auction", "grace": f"{grace_s}s"}],
        "select": {
            "n": "bids.n", "auction": "bids.auction", "price": "bids.price", "bidder": "bids.bidder", "ts": "bids.ts",
            "version": "v.version",
        },
        "into": {"stream": "joined"},
    }  # fmt: skip


def _register(
    client: Client, kind: str, name: str, columns: dict[str, str], folder: Path, extra: Json, where: str | None = None
) -> None:
    connector: dict[str, Any] = {"type": "files", "path": str(folder), "format": "ndjson"}
    if where is not None:
        connector["where"] = where
    definition = {"key": ["auction"], "columns": columns, "event_time": "ts", "connector": connector, **extra}
    client.register(kind, name, definition)


def _rows(folder: Path) -> int:
    return sum(chunk.count(b"\n") for path in folder.iterdir() for chunk in [path.read_bytes()])

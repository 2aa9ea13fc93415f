"""The timed jobs: J1 joins bids to the versioned table, J2 counts them per key in final windows of 10 s."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
from psycopg import sql
from slackwater import Client, Json

from engine.postgres.links import LinkedConnection
from tests.bench.oracle import compare_finals, judge_join, judge_windows, merge, merged_counts
from tests.bench.service import fresh_service
from tests.bench.sources import DATED, FileSource, Input, Source
from tests.bench.timed import Measured, Run, run_query
from tests.derived_log import derived_rows

WINDOW_MS = 10_000
WINDOW_GRACE_MS = 5_000
TASKS = 4
BID = {"auction": "bigint", "price": "bigint", "bidder": "bigint", "ts": "bigint", "n": "bigint"}
VERSION = {"auction": "bigint", "version": "bigint", "ts": "bigint"}
HISTORY = {"versioned": {"history_retention": "1h"}}


def join_two_inputs(size: str, source: Source, work: Path, grace_s: int, beside: Sequence[int] = ()) -> Measured:
    """J1: two inputs, four tasks, merged by event time, into the log."""
    with fresh_service(work) as service:
        register(service.client, "tables", "versions", VERSION, source.connector("versions"), {**HISTORY, **source.dating})
        register(service.client, "streams", "bids", BID, source.connector("bids"), source.dating)
        inputs: tuple[Input, ...] = ("versions", "bids")
        records = sum(source.fill(service.dsn, of) for of in inputs)
        run = run_query(service, _join(grace_s, tasks=4), records, beside)
        return _judged_join(service.dsn, f"J1 join, grace {grace_s} s, {source.name} -> log", size, run)


def join_from_feed(size: str, folders: dict[str, Path], work: Path, grace_s: int, tasks: int) -> Measured:
    """J1 on one directory that holds both sides in arrival order: equals the published table, for every number of tasks (T1)."""
    with fresh_service(work) as service:
        columns = {**BID, **VERSION, "kind": "string"}
        connector = {"type": "files", "path": str(folders["feed"]), "format": "ndjson"}
        register(service.client, "tables", "versions", columns, {**connector, "where": "kind = 'version'"}, {**HISTORY, **DATED})
        register(service.client, "streams", "bids", columns, {**connector, "where": "kind = 'bid'"}, DATED)
        source = FileSource(folders)
        records = source.fill(service.dsn, "bids") + source.fill(service.dsn, "versions")
        run = run_query(service, _join(grace_s, tasks), records)
        return _judged_join(service.dsn, f"J1 join, grace {grace_s} s, one feed", size, run)


def count_final(size: str, source: Source, work: Path, key: str, beside: Sequence[int] = ()) -> Measured:
    """J2: final counts per key into a view; four tasks. The merge of the backlog says exactly what they are (P2)."""
    with fresh_service(work) as service:
        register(service.client, "streams", "bids", BID, source.connector("bids"), source.dating)
        run = run_query(service, count_query("counts", "bids", key), source.fill(service.dsn, "bids"), beside)
        got = final_counts(service.dsn, "counts", key)
        quality = judge_windows(size, got, key, WINDOW_MS, WINDOW_GRACE_MS)
        share = quality.counted / quality.expected_counted
        own = merged_counts(merge(source.partitions("bids")), key, WINDOW_MS, WINDOW_GRACE_MS)
        finals = compare_finals(got, own)
        answers = (
            f"{quality.counted:,} bids in {quality.rows:,} final windows, {share:.2%} of the "
            f"{quality.expected_counted:,} that one task counts in arrival order; {quality.equal:,} of {quality.expected_rows:,} equal; {finals}"
        )
        unlike = finals.wrong + finals.missing + finals.extra
        return run.measured(f"J2 final count per {key}, {source.name} -> view", answers, unlike, counted_share=share)


def count_query(name: str, stream: str, key: str, **source: str) -> Json:
    """Return the query that counts a stream of bids per key in final windows.

    Args:
        name: of the query and its table.
        stream: what it reads.
        key: the column that is grouped by.
        source: what ``from`` says besides.
    """
    return {
        "name": name,
        "from": {"stream": stream, **source},
        "tasks": TASKS,
        "group_by": [key],
        "window": {"type": "tumbling", "size": f"{WINDOW_MS}ms", "grace": f"{WINDOW_GRACE_MS}ms", "retention": "36500d"},
        "aggregate": {"bids": "count(*)"},
        "suppress": {"mode": "until_window_closes"},
        "into": {"table": name},
    }


def final_counts(dsn: str, table: str, key: str) -> pl.DataFrame:
    """Return what a table of final counts holds: ``key``, ``start``, ``count``."""
    start = sql.SQL("(extract(epoch FROM window_start) * 1000)::bigint")
    statement = sql.SQL("SELECT {}, {}, bids FROM {}").format(sql.Identifier(key), start, sql.Identifier("views", table))
    with LinkedConnection.connect(dsn) as connection:
        rows = connection.execute(statement).fetchall()
    return pl.DataFrame(rows, schema={"key": pl.Int64, "start": pl.Int64, "count": pl.Int64}, orient="row")


def _judged_join(dsn: str, job: str, size: str, run: Run) -> Measured:
    with LinkedConnection.connect(dsn) as connection:
        frame = derived_rows(connection, "joined").select("n", "version")
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


def register(client: Client, kind: str, name: str, columns: dict[str, str], connector: dict[str, Any], extra: Json) -> None:
    """Register one side of the input."""
    definition = {"key": ["auction"], "columns": columns, "connector": connector, **extra}
    client.relation(kind, name).register(definition)

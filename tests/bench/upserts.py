"""Row upserts into a view, beside what Postgres takes for the same rows when nothing else is done to them.

The yardstick copies each batch into a temporary table, upserts from there and inserts the encoded batch as one row of a log, in one
transaction each: what a sink cannot do without. Its rows are in memory, judged, ordered and cut into batches; the query's come from
the log, through Spark.
"""

from __future__ import annotations

import io
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from engine.log.storage import append_batches, encode_batch, encode_batches, ensure_feed, find_feed
from engine.postgres.links import LinkedConnection
from tests.bench.nxt import BASE_MS
from tests.bench.service import fresh_service
from tests.bench.timed import Measured, run_query

ROUNDS = 3
ROWS = {"tiny": 10_000, "small": 1_000_000, "large": 1_000_000}
"""Of each round: every key once. A million is also the bound of a batch, so that folding leaves nothing out (but of the tiny size)."""

APPENDED_ROWS = 10_000
COLUMNS = {"id": "bigint", "name": "string", "amount": "double", "count": "bigint", "ts": "bigint"}
_TABLE = "bare"
_COLUMNS = "id, name, amount, count, ts"


@dataclass(frozen=True, slots=True)
class Upserts:
    """One comparison.

    Attributes:
        query: the whole way from the log to the view.
        bare_seconds: what the yardstick took for the same rows.
    """

    query: Measured
    bare_seconds: float

    @property
    def bare_per_second(self) -> float:
        return self.query.records / self.bare_seconds

    @property
    def ratio(self) -> float:
        """How fast the query is, steadily, beside the yardstick."""
        return (self.query.steady_per_second or self.query.records_per_second) / self.bare_per_second

    @property
    def sink_ratio(self) -> float:
        """How fast the sink's transactions alone are beside the yardstick."""
        return self.bare_seconds * 1000 / self.query.sink_ms


def upsert_rows(size: str, work: Path) -> Upserts:
    """Measure both in one service, the yardstick first, while the service idles."""
    rows = ROWS[size]
    with fresh_service(work) as service:
        bare_seconds = _bare(service.dsn, rows)
        definition = {"key": ["id"], "columns": COLUMNS, "event_time": "ts", "connector": {"type": "log", "partitions": 1}}
        service.client.table("rows").register(definition)
        _append(service.dsn, rows)
        query = {
            "name": "kept", "from": {"table": "rows"}, "tasks": 4,
            "select": {name: f"rows.{name}" for name in COLUMNS}, "into": {"table": "kept"},
        }  # fmt: skip
        run = run_query(service, query, rows * ROUNDS)
        with LinkedConnection.connect(service.dsn) as connection:
            same = "SELECT count(*) FROM views.kept JOIN bare USING (id, name, amount, count, ts)"
            counted = connection.execute(same).fetchone()
        equal = 0 if counted is None else int(counted[0])
        return Upserts(run.measured("row upserts, log -> view", f"{equal:,} of {rows:,} rows equal"), bare_seconds)


def _round(rows: int, number: int) -> pl.DataFrame:
    ids = np.random.default_rng(number).permutation(rows)
    return pl.DataFrame(
        {
            "id": ids,
            "amount": ids * 0.25 + number,
            "count": np.full(rows, number),
            "ts": BASE_MS + number * rows + np.arange(rows),
        }
    ).select("id", pl.format("name of {}", "id").alias("name"), "amount", "count", "ts")


def _bare(dsn: str, rows: int) -> float:
    seconds = 0.0
    with LinkedConnection.connect(dsn, autocommit=True) as connection:
        connection.execute(
            f"CREATE TABLE {_TABLE} (id bigint PRIMARY KEY, name text, amount double precision, count bigint, ts bigint)"
        )
        feed = ensure_feed(connection, "bare-changes", 1)
        for number in range(ROUNDS):
            frame = _round(rows, number)
            begun = time.perf_counter()
            text = io.BytesIO()
            frame.write_csv(text, include_header=False, quote_style="non_numeric")
            with connection.transaction(), connection.cursor() as cursor:
                cursor.execute(f"CREATE TEMP TABLE stage (LIKE {_TABLE}) ON COMMIT DROP")
                with cursor.copy(f"COPY stage ({_COLUMNS}) FROM STDIN (FORMAT csv)") as copy:
                    copy.write(text.getvalue())
                cursor.execute(
                    f"INSERT INTO {_TABLE} SELECT * FROM stage ON CONFLICT (id) DO UPDATE SET name = excluded.name, "
                    "amount = excluded.amount, count = excluded.count, ts = excluded.ts"
                )
                batches = encode_batches(frame.with_columns(pl.col("ts").alias("_ts")), 0)
                append_batches(connection, feed.id, [(0, batch) for batch in batches])
            seconds += time.perf_counter() - begun
    return seconds


def _append(dsn: str, rows: int) -> None:
    with LinkedConnection.connect(dsn, autocommit=True) as connection:
        feed = find_feed(connection, "rows")
        if feed is None:
            raise RuntimeError("there is no feed 'rows'")
        for number in range(ROUNDS):
            frame = _round(rows, number).with_columns(pl.col("ts").alias("_ts"), pl.lit(0, pl.Int8).alias("_op"))
            for part in frame.iter_slices(APPENDED_ROWS):
                append_batches(connection, feed.id, [(0, encode_batch(part, 0))])

"""A launcher that does what the driver does around a query, over any executor; and queries over flights for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Generic, TypeVar
from uuid import UUID, uuid4

import numpy as np
import polars as pl
import psutil
import psycopg
from psycopg import sql

from engine.commit.task_states import CommittedState, load_committed_state
from engine.commit.views import create_view
from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition
from engine.log.sequences import make_result_feed
from engine.log.storage import append_batches, encode_batch, ensure_feed, route
from engine.plan.build import build_plan
from engine.plan.catalog import CatalogEntry, change_feed, source_entry
from engine.plan.model import Plan
from engine.postgres.fence import claim_epoch
from engine.runtime.executor import QueryHandle
from engine.runtime.launches.launch_state import Launch
from engine.runtime.launches.run_options import RunOptions
from tests.derived_log import derived_rows

DEADLINE_S: Final = 180
H = TypeVar("H", bound=QueryHandle)


@dataclass
class Launcher(Generic[H]):
    """Registers relations, appends records, launches queries and reads what they committed.

    Attributes:
        start: launches a query on the executor of the tests.
        dsn: the database.
        root: of the checkpoints.
    """

    start: Callable[[Plan, Launch, RunOptions], H]
    dsn: str
    root: Path
    catalog: dict[str, CatalogEntry] = field(default_factory=dict)

    def register(self, kind: str, name: str, **definition: Any) -> None:
        model = StreamDefinition if kind == "stream" else TableDefinition
        parsed = model.model_validate(definition)
        self.catalog[name] = entry = source_entry(name, parsed)
        if entry.feed.type == "log":
            with self.connect() as connection:
                ensure_feed(connection, entry.feed.log_feed, parsed.connector.partitions)  # type: ignore[union-attr]

    def append(self, name: str, rows: list[dict[str, Any]] | pl.DataFrame) -> None:
        """Append records as the API does, all partitions in one transaction; ``ts`` is their event time."""
        entry = self.catalog[name]
        frame = pl.DataFrame(rows, schema=entry.relation.columns.polars()) if isinstance(rows, list) else rows
        frame = frame.with_columns(pl.col("ts").alias("_ts"), pl.lit(0, pl.Int8).alias("_op"))
        with self.connect() as connection:
            feed = ensure_feed(connection, entry.feed.log_feed, 1)
            parts = route(frame, entry.relation.key, feed.partitions)
            with connection.transaction():
                append_batches(connection, feed.id, [(partition, encode_batch(part, 0)) for partition, part in parts])

    def plan(self, **definition: Any) -> Plan:
        """Build a plan and make its output."""
        plan = self.replanned(**definition)
        with self.connect() as connection:
            if plan.output.kind == "table":
                create_view(connection, plan.output)
                make_result_feed(connection, change_feed(plan.output.name), plan.tasks, None)
            else:
                make_result_feed(connection, plan.output.name, plan.tasks, None)
        return plan

    def replanned(self, **definition: Any) -> Plan:
        """Build the plan of an edited definition whose output exists; it has four tasks unless it says otherwise."""
        return build_plan(QueryDefinition.model_validate({"tasks": 4, **definition}), self.catalog)

    def launch(self, plan: Plan, identity: UUID, epoch: int, **options: Any) -> H:
        """Launch a query whose id and checkpoint id are ``identity``."""
        with self.connect() as connection:
            claim_epoch(connection, identity, identity, epoch)
        return self.start(plan, Launch(identity, identity, epoch, self.directory(identity)), RunOptions(**options))

    def run(self, plan: Plan, identity: UUID | None = None, epoch: int = 1, **options: Any) -> UUID:
        """Launch a query and let it read what is there."""
        identity = identity or uuid4()
        query = self.launch(plan, identity, epoch, is_available_now=True, **options)
        wait_for(lambda: not query.is_active)
        error = query.error()
        assert query.stop(DEADLINE_S)
        if error is not None:
            raise error
        return identity

    def stream(self, name: str) -> pl.DataFrame:
        """Everything in a derived feed, in order."""
        with self.connect() as connection:
            return derived_rows(connection, name)

    def view(self, name: str) -> list[tuple[Any, ...]]:
        """Rows of a view in the order of their columns."""
        with self.connect() as connection:
            query = sql.SQL("SELECT * FROM views.{} ORDER BY 1, 2").format(sql.Identifier(name))
            return connection.execute(query).fetchall()

    def commit(self, identity: UUID) -> dict[str, Any]:
        with self.connect() as connection:
            row = connection.execute(
                "SELECT batch_id, position, detail FROM log.commit WHERE query_id = %s", (identity,)
            ).fetchone()
        assert row is not None
        return {"batch_id": row[0], "position": row[1], "detail": row[2]}

    def counters(self, identity: UUID) -> dict[tuple[str, str], int]:
        with self.connect() as connection:
            rows = connection.execute("SELECT input, reason, count FROM log.counter WHERE owner = %s", (identity,)).fetchall()
        return {(name, reason): count for name, reason, count in rows}

    def directory(self, identity: UUID) -> Path:
        return self.root / str(identity)

    def segments(self, identity: UUID) -> list[Path]:
        return sorted(self.directory(identity).glob("segments/**/*.arrow"))

    def kept(self, identity: UUID) -> CommittedState:
        with self.connect() as connection:
            return load_committed_state(connection, identity, identity)

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.dsn, autocommit=True)


HOUR_MS = 3_600_000
COLUMNS = {"k": "string", "carrier": "string", "ts": "bigint", "n": "bigint"}


def register_flights(launcher: Launcher[Any], **more: Any) -> None:
    launcher.register(
        "stream", "flights", key=["k"], columns=COLUMNS, event_time="ts", connector={"type": "log", "partitions": 2}, **more
    )


def register_weather(launcher: Launcher[Any]) -> None:
    launcher.register(
        "table", "weather", key=["k"], columns={"k": "string", "temp": "bigint", "ts": "bigint"}, event_time="ts",
        versioned={"history_retention": "1d"}, connector={"type": "log", "partitions": 2},
    )  # fmt: skip


def flight(k: str, ts: int, n: int, carrier: str = "AA") -> dict[str, Any]:
    return {"k": k, "carrier": carrier, "ts": ts, "n": n}


def counting(**more: Any) -> dict[str, Any]:
    """Count and sum per key in windows of one hour, every change."""
    return {
        "name": "hourly", "from": {"stream": "flights"}, "tasks": 3, "group_by": ["k"],
        "window": {"type": "tumbling", "size": "1h", "grace": "1d", "retention": "36500d"},
        "aggregate": {"flights": "count(*)", "total": "sum(n)"}, "into": {"table": "hourly"}, **more,
    }  # fmt: skip


def joining(**more: Any) -> dict[str, Any]:
    return {
        "name": "joined", "from": {"stream": "flights"}, "tasks": 2,
        "joins": [{"table": "weather", "as": "w", "type": "left", "on": "flights.k = w.k", "grace": "10s"}],
        "select": {"k": "flights.k", "n": "flights.n", "temp": "w.temp"}, "into": {"stream": "joined"}, **more,
    }  # fmt: skip


def many_flights(rows: int, first: int = 0) -> pl.DataFrame:
    numbers = np.arange(first, first + rows)
    return pl.DataFrame({
        "k": [f"K{number % 17}" for number in numbers],
        "carrier": [f"C{number % 5}" for number in numbers],
        "ts": numbers * 1_000,
        "n": numbers,
    })  # fmt: skip


def hourly_oracle(frame: pl.DataFrame, key: str = "k") -> dict[tuple[str, int], tuple[int, int]]:
    grouped = frame.group_by(key, pl.col("ts") // HOUR_MS).agg(pl.len(), pl.col("n").sum())
    return {(name, hour): (count, total) for name, hour, count, total in grouped.iter_rows()}


def hourly_rows(launcher: Launcher[Any], name: str = "hourly") -> dict[tuple[str, int], tuple[int, int]]:
    return {(row[0], int(row[1].timestamp()) // 3600): (row[3], row[4]) for row in launcher.view(name)}


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.02)


def emptied(dsn: str) -> None:
    """Remove every feed, result and count of earlier tests."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("TRUNCATE log.feed, log.commit, log.task_state, log.counter, log.late_record, log.reject CASCADE")
        for schema in ("views", "history"):
            connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))


def kill_workers() -> None:
    """Kill -9 every worker below this session's JVM, but not the daemon that forks them."""
    for process in psutil.Process().children(recursive=True):
        try:
            parent = process.parent()
            # Daemons and what they fork have the same name, the fork server's is another.
            if process.name().startswith("py-") and parent is not None and parent.name() == process.name():
                process.kill()
        except psutil.NoSuchProcess:
            continue

"""One Spark session for all tests, and a launcher that does what the driver does around a query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import polars as pl
import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from engine.commit.task_states import CommittedState, load_committed_state
from engine.commit.views import create_view
from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition
from engine.log.sequences import make_result_feed
from engine.log.storage import append_batches, encode_batch, ensure_feed, route
from engine.plan.build import build_plan
from engine.plan.catalog import CatalogEntry, source_entry
from engine.plan.model import Plan
from engine.plan.result_feeds import change_feed
from engine.postgres.fence import claim_epoch
from engine.postgres.postgres import close_shared_connections
from engine.runtime.launch_state import Launch
from engine.runtime.run_options import RunOptions
from engine.spark.session import SparkSettings, session_of
from engine.spark.streams.runner import RunningQuery
from tests.conftest import CLASSES
from tests.derived_log import derived_rows

END_SECONDS = 120


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with session_of(SparkSettings(data_dir=tmp_path_factory.mktemp("spark"), driver_memory="1g", class_dir=CLASSES)) as session:
        yield session


@dataclass
class Launcher:
    """Registers relations, appends records, launches queries and reads what they committed."""

    spark: SparkSession
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
        plan = build_plan(QueryDefinition.model_validate(definition), self.catalog)
        with self.connect() as connection:
            if plan.output.kind == "table":
                create_view(connection, plan.output)
                make_result_feed(connection, change_feed(plan.output.name), plan.tasks, None)
            else:
                make_result_feed(connection, plan.output.name, plan.tasks, None)
        return plan

    def replanned(self, **definition: Any) -> Plan:
        """Build the plan of an edited definition whose output exists."""
        return build_plan(QueryDefinition.model_validate(definition), self.catalog)

    def launch(self, plan: Plan, identity: UUID, epoch: int, **options: Any) -> RunningQuery:
        """Launch a query whose id and checkpoint id are ``identity``."""
        with self.connect() as connection:
            claim_epoch(connection, identity, identity, epoch)
        options_of_launch = RunOptions(**options)
        launched = Launch(identity, identity, epoch, self.directory(identity))
        return RunningQuery.start(self.spark, plan, launched, self.dsn, options_of_launch)

    def run(self, plan: Plan, identity: UUID | None = None, epoch: int = 1, **options: Any) -> UUID:
        """Launch a query and let it read what is there."""
        identity = identity or uuid4()
        query = self.launch(plan, identity, epoch, is_available_now=True, **options)
        ended, error = query.await_termination(END_SECONDS), query.error()
        assert query.stop(END_SECONDS)
        if error is not None:
            raise error
        assert ended
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


@pytest.fixture
def launcher(spark: SparkSession, dsn: str, tmp_path: Path) -> Iterator[Launcher]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("TRUNCATE log.feed, log.commit, log.task_state, log.counter, log.late_record, log.reject CASCADE")
        connection.execute("DROP SCHEMA views CASCADE")
        connection.execute("CREATE SCHEMA views")
        connection.execute("DROP SCHEMA history CASCADE")
        connection.execute("CREATE SCHEMA history")
    yield Launcher(spark, dsn, tmp_path)
    close_shared_connections()

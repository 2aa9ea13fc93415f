"""The stages of a query without Spark, on a real Postgres: each task learns the time of every batch, and works where something is due."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import polars as pl
import psycopg
import pytest

from engine.commit.sink import Sink
from engine.commit.task_states import begin_state, load_states, new_layout
from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition
from engine.log import storage as log
from engine.log.fetched import Fetched, fetch
from engine.log.sequences import make_result_feed
from engine.plan.build import build_plan
from engine.plan.catalog import source_entry
from engine.plan.model import Plan
from engine.postgres.fence import claim_epoch
from engine.runtime.limits.batch_size import BatchLimit
from engine.runtime.planning.batch_planner import BatchPlanner
from engine.runtime.planning.cursors import new_cursor, start_positions
from engine.runtime.planning.source_spec import SourceSpec
from engine.runtime.source import PacketReader
from engine.runtime.stages import StageWork, StatePlace
from engine.sources.packets import Packet
from engine.state.segments.directories import Directories
from tests.derived_log import derived_rows

Connection = psycopg.Connection[Any]
COLUMNS = {"k": "string", "t": "bigint"}
CATALOG = {
    "s": source_entry("s", StreamDefinition.model_validate({"key": ["k"], "columns": COLUMNS, "event_time": "t"})),
    "w": source_entry(
        "w",
        TableDefinition.model_validate(
            {"key": ["k"], "columns": COLUMNS, "event_time": "t", "versioned": {"history_retention": "1h"}}
        ),
    ),
}
A, B = "a", "d"
"""Keys of two tasks."""


def joined(grace: str = "10ms", **more: Any) -> Plan:
    definition = {
        "name": "q", "tasks": 2, "from": {"stream": "s"}, "into": {"stream": "out"}, "select": {"k": "s.k", "t": "s.t"},
        "joins": [{"table": "w", "type": "left", "on": "s.k = w.k", "grace": grace}],
    }  # fmt: skip
    return build_plan(QueryDefinition.model_validate(definition | more), CATALOG)


class Query:
    """A query whose batches are read, worked on and committed in turn.

    Attributes:
        worked: the tasks that had work in the last batch.
    """

    def __init__(self, conn: Connection, folder: Path, plan: Plan) -> None:
        self.conn, self.plan, self.folder = conn, plan, folder
        self.dsn, self.id, self.epoch, self.batch = conn.info.dsn, uuid4(), 0, 0
        for name in ("s", "w"):
            log.ensure_feed(conn, name, 1)
        make_result_feed(conn, "out", 1, self.id)
        self.cursor: Mapping[str, Any] = new_cursor(start_positions(self.dsn, plan.inputs), 0, 0)
        self.layout = new_layout(plan.tasks)
        self.launch()
        begin_state(conn, self.id, self.epoch, self.layout, self.cursor, {})
        self.worked: list[int] = []

    def launch(self, plan: Plan | None = None, *, is_overlapped: bool = False) -> None:
        self.plan, self.epoch = plan or self.plan, self.epoch + 1
        claim_epoch(self.conn, self.id, self.id, self.epoch)
        place = StatePlace(self.dsn, self.id, self.epoch, Directories(self.folder), self.layout.segments, is_overlapped)
        works = tuple(StageWork(self.plan, stage.index, place) for stage in self.plan.stages)
        spec = SourceSpec(self.dsn, self.plan.inputs, self.plan.tasks, self.cursor, BatchLimit(1_000, 10**9), 0, stages=works)
        self.planner, self.reader = BatchPlanner.of(spec), PacketReader.of(spec)

    def post(self, feed: str, *records: tuple[str, int]) -> None:
        frame = pl.DataFrame(records, schema={"k": pl.String, "t": pl.Int64}, orient="row")
        frame = frame.with_columns(pl.col("t").alias("_ts"), pl.lit(0, pl.Int8).alias("_op"))
        found = log.find_feed(self.conn, feed)
        assert found is not None
        log.append_batches(self.conn, found.id, [(0, log.encode_batch(frame, 0))])

    def packets(self, fetched: Fetched | None = None) -> list[Packet]:
        """Do the work of the next batch."""
        self.cursor, start = self.planner.next_cursor(self.cursor), self.cursor
        (group,) = self.planner.groups(start, self.cursor)
        return list(self.reader.done(group, self.batch, fetched))

    def commit(self, packets: list[Packet]) -> None:
        sink = Sink(self.dsn, self.plan, self.id, self.id, self.epoch)
        sink.commit(self.batch, packets)
        sink.close()
        self.batch += 1
        self.worked = sorted({packet.partition for packet in packets if packet.kind == "state"})

    def step(self) -> None:
        self.commit(self.packets())

    @property
    def made(self) -> list[tuple[str, int]]:
        frame = derived_rows(self.conn, "out")
        return frame.select("k", "t").rows() if frame.width else []

    @property
    def times(self) -> dict[str, int]:
        (times,) = self.conn.execute(
            "SELECT detail -> 'times' -> 'times' FROM log.commit WHERE query_id = %s", (self.id,)
        ).fetchone() or ({},)
        return dict(times)


@pytest.fixture
def conn(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("TRUNCATE log.commit, log.task_state, log.counter CASCADE; DELETE FROM log.feed")
        yield connection


@pytest.fixture
def query(conn: Connection, tmp_path: Path) -> Query:
    return Query(conn, tmp_path, joined())


def test_a_record_of_one_task_releases_what_waits_in_another_and_a_task_with_nothing_due_has_no_work(query: Query) -> None:
    query.post("s", (A, 100), (B, 101))
    query.step()
    assert (query.worked, query.made) == ([0, 1], [])
    tokens = {place: state.token for place, state in load_states(query.conn, query.id).items()}
    query.post("s", (A, 105))
    query.step()
    assert (len(query.worked), query.made) == (1, [])
    (own,) = query.worked
    assert load_states(query.conn, query.id)[0, 1 - own].token == tokens[0, 1 - own]
    query.post("s", (A, 111))
    query.step()
    assert (query.worked, query.made) == ([0, 1], [(A, 100), (B, 101)])


def test_a_record_of_a_table_moves_its_time_alone(query: Query) -> None:
    query.post("s", (A, 100))
    query.step()
    query.post("w", (A, 900))
    query.step()
    assert query.times == {"0": 900, "1": 100}
    assert query.made == []


def test_a_launch_gives_every_task_work_once_since_its_definition_may_have_been_edited(query: Query) -> None:
    query.post("s", (A, 100), (B, 101))
    query.step()
    query.launch(joined("1ms"))
    query.post("w", (A, 50))
    query.step()
    assert query.worked == [0, 1]
    query.post("w", (A, 51))
    query.step()
    assert len(query.worked) == 1


def test_times_that_were_fetched_beforehand_are_those_that_the_batch_before_committed(query: Query) -> None:
    query.post("s", (A, 100), (B, 101))
    query.step()
    query.post("w", (A, 50))
    query.commit(query.packets(fetch(query.conn, [query.id], [])))
    query.post("s", (B, 120))
    query.commit(query.packets(fetch(query.conn, [query.id], [])))
    assert query.made == [(A, 100), (B, 101)]
    assert query.times == {"0": 50, "1": 120}


def test_what_was_fetched_before_the_commit_that_a_batch_waits_for_counts_for_nothing(query: Query) -> None:
    query.launch(is_overlapped=True)
    query.post("s", (A, 100), (B, 101))
    early = fetch(query.conn, [query.id], [])
    query.step()
    query.post("s", (B, 120))
    query.commit(query.packets(early))
    assert query.made == [(A, 100), (B, 101)]
    assert query.times == {"1": 120}


def test_records_of_no_task_move_time_nowhere_and_are_counted(query: Query) -> None:
    query.post("s", (A, 100))
    query.step()
    query.post("s", (None, 900))  # type: ignore[arg-type]
    query.step()
    assert query.times == {"1": 100}

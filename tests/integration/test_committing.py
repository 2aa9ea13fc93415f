"""Light batches of a round share a transaction, and each member gets what it would have got alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import polars as pl
import psycopg
import pytest

from engine.commit.task_states import TaskState, begin_state, load_states, new_layout
from engine.commit.views import create_view
from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition
from engine.errors import BufferFull, DataInvalid, EpochFenced, ResultLocked, SinkUnavailable
from engine.frames.arrow_frames import encode_frame
from engine.log.sequences import make_result_feed
from engine.log.storage import ensure_feed
from engine.plan.build import build_plan
from engine.plan.catalog import change_feed, source_entry
from engine.postgres.fence import claim_epoch, cut_off_older
from engine.postgres.postgres import SinkLink
from engine.runtime.launches.committing import QueryBatch, commit_cycle
from engine.runtime.launches.launch_state import Launch, LaunchState
from engine.runtime.launches.launched_query import LaunchContext, LaunchedQuery
from engine.runtime.launches.run_options import RunOptions
from engine.runtime.limits.batch_size import ExecutionMode
from engine.runtime.planning.cursors import new_cursor
from engine.sources.packets import Packet
from tests.derived_log import caused, derived_rows
from tests.integration.test_sink import cursor, progress, stats

STREAM = {"key": ["k"], "columns": {"k": "string", "n": "bigint", "t": "bigint"}, "event_time": "t"}
NAMES = ("first", "second", "third")


@dataclass
class Round:
    """Queries of one slot."""

    conn: psycopg.Connection[Any]
    link: SinkLink
    queries: dict[str, LaunchedQuery]
    ids: dict[str, UUID]

    def commit(self, batches: dict[str, Sequence[Packet]]) -> dict[str, BaseException | None]:
        """Commit a round; returns what became of each."""
        ready = [QueryBatch(self.queries[name], packets, {}) for name, packets in batches.items()]
        done = {id(batch.query): error for batch, error in commit_cycle(self.link, ready)}
        return {name: done[id(self.queries[name])] for name in batches}

    def rows(self, name: str) -> list[Any]:
        return self.conn.execute(f"SELECT k, n FROM views.{name} ORDER BY k").fetchall()

    def changes(self, name: str) -> list[Any]:
        frame = derived_rows(self.conn, change_feed(name))
        return frame.select("k", "n").rows() if frame.width else []

    def batch_id(self, name: str) -> int | None:
        row = self.conn.execute("SELECT batch_id FROM log.commit WHERE query_id = %s", (self.ids[name],)).fetchone()
        assert row is not None
        return row[0]

    def transactions(self, name: str) -> int:
        """Return the transaction that wrote a query's commit row last."""
        row = self.conn.execute("SELECT xmin::text::bigint FROM log.commit WHERE query_id = %s", (self.ids[name],)).fetchone()
        assert row is not None
        return int(row[0])


@pytest.fixture
def carried(dsn: str, tmp_path: Path) -> Iterator[Round]:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("TRUNCATE log.commit, log.task_state, log.counter CASCADE; DELETE FROM log.feed")
        link = SinkLink(dsn, 0.2)
        made = Round(conn, link, {}, {})
        entry = source_entry("s", StreamDefinition.model_validate(STREAM))
        ensure_feed(conn, entry.feed.log_feed, 1)
        for name in NAMES:
            conn.execute(f"DROP TABLE IF EXISTS views.{name}")
            definition = {"name": f"q_{name}", "from": {"stream": "s"}, "group_by": ["k"], "aggregate": {"n": "count(*)"}}
            plan = build_plan(QueryDefinition.model_validate(definition | {"tasks": 2, "into": {"table": name}}), {"s": entry})
            create_view(conn, plan.output)
            made.ids[name] = query_id = uuid4()
            make_result_feed(conn, change_feed(name), plan.tasks, query_id)
            claim_epoch(conn, query_id, query_id, 1)
            layout, start = new_layout(plan.tasks), new_cursor({"log:s": {"0": 0}}, 0, 0)
            begin_state(conn, query_id, 1, layout, start, {})
            launch = Launch(query_id, query_id, 1, tmp_path / name)
            query = LaunchedQuery(LaunchContext(plan, launch, LaunchState(0, start, layout), dsn, RunOptions(), tmp_path))
            query.resume(link, None, ExecutionMode.SHARED, 0)
            made.queries[name] = query
        yield made
        link.close()


def batch(*rows: tuple[str | None, int], task: int = 0, **told: Any) -> list[Packet]:
    """Return the packets of a batch that gives these rows, and state of its task."""
    frame = pl.DataFrame({"_ts": [7] * len(rows), "k": [k for k, _ in rows], "n": [n for _, n in rows]})
    frame = caused(frame.with_columns(pl.lit(0, pl.Int8).alias("_op"))[["_ts", "_op", "k", "n"]])
    made = Packet(task, "data", -1, task, 0, len(rows), None, None, 1_000, encode_frame(frame))
    state = Packet(task, "state", -1, task, 0, 0, None, None, 1_000, TaskState("token", '{"at": "µ \\" \\\\"}').encoded())
    return [made, state, progress(len(rows)), stats([["s", "null_key", 2]])]


def everything(carried: Round) -> dict[str, Any]:
    """Return what is stored of each query, but for identities and moments."""
    found = {}
    for name, query_id in carried.ids.items():
        row = carried.conn.execute(
            "SELECT batch_id, position, stream_time_ms, detail - 'phases_ms' - 'execution', cursor FROM log.commit WHERE query_id = %s",
            (query_id,),
        ).fetchone()
        counts = carried.conn.execute("SELECT input, reason, count FROM log.counter WHERE owner = %s", (query_id,)).fetchall()
        feed = carried.conn.execute(
            "SELECT next_sequence, reached_ms, partitions, producer = %s FROM log.feed WHERE name = %s",
            (query_id, change_feed(name)),
        ).fetchone()
        states = load_states(carried.conn, query_id)
        found[name] = (carried.rows(name), carried.changes(name), row, counts, feed, states)
    return found


def test_batches_share_a_transaction_and_give_what_each_gives_alone(carried: Round) -> None:
    carried.commit({name: batch(("a", place), ("b", place)) for place, name in enumerate(NAMES[:2])})
    carried.commit({"third": batch(("a", 2), ("b", 2))})
    together = everything(carried)
    assert carried.transactions("first") == carried.transactions("second") != carried.transactions("third")
    for place, name in enumerate(NAMES):
        assert together[name][0] == [("a", place), ("b", place)]
        assert together[name][2:] == together["third"][2:]
        assert carried.queries[name].next_batch == 1
    assert carried.commit({name: batch(("a", 9), task=1) for name in NAMES}) == dict.fromkeys(NAMES)
    assert [carried.changes(name)[-1] for name in NAMES] == [("a", 9)] * 3
    assert [len(states) for *_, states in everything(carried).values()] == [2, 2, 2]


def test_one_that_is_fenced_loses_its_batch_and_no_other(carried: Round) -> None:
    claim_epoch(carried.conn, carried.ids["second"], carried.ids["second"], 2)
    done = carried.commit({name: batch(("a", 1)) for name in NAMES})
    assert isinstance(done.pop("second"), EpochFenced)
    assert done == {"first": None, "third": None}
    assert [carried.rows(name) for name in NAMES] == [[("a", 1)], [], [("a", 1)]]
    assert [carried.batch_id(name) for name in NAMES] == [0, None, 0]
    assert not carried.queries["second"].is_active
    assert carried.commit({name: batch(("a", 2)) for name in ("first", "third")}) == {"first": None, "third": None}


def test_one_whose_value_cannot_be_written_loses_its_batch_and_no_other(carried: Round) -> None:
    done = carried.commit({"first": batch(("a", 1)), "second": batch(("a\0b", 1)), "third": batch(("a", 1))})
    assert isinstance(done["second"], DataInvalid)
    assert [carried.rows(name) for name in NAMES] == [[("a", 1)], [], [("a", 1)]]


def test_one_whose_table_is_locked_waits_alone(carried: Round, dsn: str) -> None:
    with psycopg.connect(dsn) as other:
        other.execute("LOCK TABLE views.second")
        done = carried.commit({name: batch(("a", 1)) for name in NAMES})
    assert isinstance(done["second"], ResultLocked)
    assert [carried.rows(name) for name in NAMES] == [[("a", 1)], [], [("a", 1)]]


def test_one_that_the_database_refuses_for_now_loses_its_batch_and_no_other(carried: Round) -> None:
    carried.conn.execute(
        """
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'no space left on the device' USING ERRCODE = 'disk_full'; END $$;
        CREATE TRIGGER refused BEFORE INSERT ON views.second FOR EACH ROW EXECUTE FUNCTION refuse()
        """
    )
    done = carried.commit({name: batch(("a", 1)) for name in NAMES})
    assert isinstance(error := done.pop("second"), SinkUnavailable)
    assert "no space left" in str(error)
    assert done == {"first": None, "third": None}
    assert [carried.rows(name) for name in NAMES] == [[("a", 1)], [], [("a", 1)]]


def test_a_batch_that_was_planned_as_one_that_is_committed_meanwhile_counts_nowhere(carried: Round) -> None:
    planned = [*batch(("a", 1)), cursor(1, batch_id=0)]
    assert carried.commit({"first": planned}) == {"first": None}
    done = carried.commit({"first": planned, "second": batch(("a", 1)), "third": batch(("a", 1))})
    assert isinstance(done.pop("first"), SinkUnavailable)
    assert done == {"second": None, "third": None}
    assert (carried.changes("first"), carried.batch_id("first")) == ([("a", 1)], 0)
    row = carried.conn.execute("SELECT cursor FROM log.commit WHERE query_id = %s", (carried.ids["first"],)).fetchone()
    assert row == ({"feeds": {"log:s": {"0": 1}}},)


def test_one_whose_feed_is_gone_loses_its_batch_and_no_other(carried: Round) -> None:
    carried.conn.execute("DELETE FROM log.feed WHERE name = %s", (change_feed("first"),))
    done = carried.commit({name: batch(("a", 1)) for name in NAMES})
    assert done.pop("first") is not None
    assert done == {"second": None, "third": None}


def test_one_whose_buffer_is_full_ends_with_its_batch_committed(carried: Round) -> None:
    full = batch(("a", 1))
    full[-1] = Packet(
        0, "stats", 0, 0, 0, 0, None, None, 1_000, full[-1].blob[:-1] + b', "failure": {"detail": "full", "position": 1}}'
    )
    done = carried.commit({"first": full, "second": batch(("a", 1))})
    assert isinstance(done["first"], BufferFull)
    assert done["second"] is None
    assert [carried.rows(name) for name in NAMES[:2]] == [[("a", 1)]] * 2


def test_one_that_was_stopped_commits_nothing(carried: Round) -> None:
    assert carried.queries["second"].end_orderly(1)
    assert carried.commit({name: batch(("a", 1)) for name in NAMES}) == dict.fromkeys(NAMES)
    assert [carried.batch_id(name) for name in NAMES] == [0, None, 0]


def test_large_batches_and_small_ones_are_all_committed(carried: Round) -> None:
    many = [(f"k{place}", place) for place in range(2_000)]
    assert carried.commit({"first": batch(*many), "second": batch(("a", 1)), "third": batch(("a", 1))}) == dict.fromkeys(NAMES)
    assert len(carried.rows("first")) == 2_000
    assert carried.transactions("first") != carried.transactions("second") == carried.transactions("third")


def test_all_are_told_where_the_connection_is_lost(carried: Round, dsn: str) -> None:
    pid = carried.link.connection().info.backend_pid
    waiting = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
    with ThreadPoolExecutor(1) as pool, psycopg.connect(dsn) as other:
        other.execute("LOCK TABLE views.third")
        committing = pool.submit(carried.commit, {name: batch(("a", 1)) for name in NAMES})
        while not carried.conn.execute(waiting, (pid,)).fetchone():
            assert not committing.done(), "it waits for the lock"
        done = committing.result()
    assert {type(error) for error in done.values()} == {SinkUnavailable}
    assert [carried.batch_id(name) for name in NAMES] == [None] * 3
    assert not any(query.is_active for query in carried.queries.values())


def test_a_newer_launch_ends_a_transaction_that_holds_its_fence_among_others(carried: Round, dsn: str) -> None:
    frozen = psycopg.connect(dsn, application_name="slackwater-sink")
    frozen.execute(
        "SELECT 1 FROM log.commit WHERE query_id = ANY(%s) ORDER BY query_id FOR UPDATE", (list(carried.ids.values()),)
    )
    assert cut_off_older(carried.conn, carried.ids["second"], 1) == 0, "it is no older launch's"
    assert cut_off_older(carried.conn, uuid4(), 2) == 0
    assert cut_off_older(carried.conn, carried.ids["second"], 2) == 1
    with pytest.raises(psycopg.OperationalError):
        frozen.execute("SELECT 1")
    frozen.close()
    assert carried.commit({name: batch(("a", 1)) for name in NAMES}) == dict.fromkeys(NAMES)

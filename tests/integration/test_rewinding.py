"""Rewinding on a real Postgres: after it everything that a query has committed is what it was, and goes on as if nothing had been behind it."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import polars as pl
import psycopg
import pytest

from engine.commit.history.restored_rows import RowsUnknown
from engine.commit.history.retained_commits import Retaining, hold_retained, retain, retained_commits
from engine.commit.history.rewinding import rewind
from engine.commit.sink import Sink
from engine.commit.task_states import Layout, TaskState, begin_state, load_committed_state, load_states
from engine.commit.views import create_view, drop_view
from engine.expressions.types.types import Schema, parse_type
from engine.frames.arrow_frames import encode_frame
from engine.log.sequences import make_result_feed, trim_sequence
from engine.log.storage import append_batches, encode_batch, ensure_feed
from engine.plan.catalog import result_feed
from engine.plan.model import Feed, Input, LateRecords, Output, Plan, RelationSchema, Stage
from engine.plan.operators.row_operators import Projection
from engine.postgres.fence import claim_epoch
from engine.postgres.postgres import connect
from engine.sources.log.replay_reader import replay_feed
from engine.sources.packets import Packet
from tests.derived_log import caused, read_derived
from tests.integration.test_sink import times
from tests.late_frames import late_frame

HOUR_MS = 3_600_000
KEEP = Retaining(HOUR_MS, 24 * HOUR_MS)
COLUMNS = {"k": "string", "n": "bigint"}
WINDOWED = {"k": "string", "window_start": "timestamp", "window_end": "timestamp", "n": "bigint"}
WINDOW_KEY = ("k", "window_start", "window_end")


def output(kind: Any, columns: dict[str, str] = COLUMNS, key: tuple[str, ...] = ("k",), **more: Any) -> Output:
    schema = Schema(tuple((name, parse_type(text)) for name, text in columns.items()))
    return Output("result", kind, schema, key, **{"is_windowed": False, "is_final": False, "retention_ms": None, **more})


STREAM = output("stream", key=())
PLAIN = output("table")
VERSIONED = output("table", history_retention_ms=20_000)
WINDOWS = output("table", WINDOWED, WINDOW_KEY, is_windowed=True, retention_ms=40_000)
FINAL = replace(WINDOWS, is_final=True)
VERSIONED_WINDOWS = replace(WINDOWS, history_retention_ms=30_000)
NESTED = output("table", {"k": "struct<a: string, b: bigint>", "n": "bigint"})


class Query:
    """A query whose batches are made by hand, and what was to be seen after each of them."""

    def __init__(self, connection: psycopg.Connection[Any], dsn: str, result: Output) -> None:
        self.connection, self.output, self.id, self.checkpoint = connection, result, uuid4(), uuid4()
        relation = RelationSchema("s", "stream", result.columns, (), None, None, None, None, None)
        source = Input(0, "s", relation, Feed("log:s", "log", "s"), result.columns.names, ())
        self.plan = Plan("q", 1, (source,), (Stage(0, result.columns, 0, (Projection(()),)),), result, LateRecords(100, 10**12))
        with connection.transaction():
            if result.kind == "table":
                create_view(connection, result)
            make_result_feed(connection, result_feed(result), 2, self.id)
        self.dsn, self.epoch, self.batch = dsn, 0, -1
        self.seen: dict[int, Any] = {}
        self.launch()
        begin_state(connection, self.id, self.epoch, Layout(1), {"feeds": {"log:s": {"0": 0}}}, {})

    def launch(self) -> None:
        self.epoch += 1
        if self.epoch > 1:
            self.sink.close()
        claim_epoch(self.connection, self.id, self.checkpoint, self.epoch)
        self.sink = Sink(self.dsn, self.plan, self.id, self.checkpoint, self.epoch)

    def commits(self, frame: pl.DataFrame, at_ms: int = 0, late: int = 0) -> None:
        """Commit one batch, retain it and note what is there."""
        self.batch += 1
        packets = [
            packet("stats", {"stage": 0, "task": 0, "buffered": {}, "counters": [["s", "seen", 1]]}),
            packet("cursor", {"feeds": {"log:s": {"0": self.batch}}}),
            times(self.batch + 1, at_ms, start=self.batch),
            packet(
                "progress",
                {
                    "feed": "log:s", "partition": 0, "start_offset": self.batch, "end_offset": self.batch + 1, "rows": 1, "max_ts": at_ms,
                    "head": at_ms,
                },
            ),
            Packet(0, "state", -1, 0, 0, 0, None, None, 1_000, TaskState.of({"batch": self.batch}).encoded()),
        ]  # fmt: skip
        for ordinal in range(2):
            part = caused(frame.gather_every(2, ordinal), head=at_ms, first=ordinal * 10_000)
            packets.append(Packet(ordinal, "data", 0, ordinal, 0, part.height, 0, 0, 1_000, encode_frame(part)))
        if late:
            rows = [("s", "late", at_ms, at_ms, self.batch, f"{self.batch}/{number}") for number in range(late)]
            kept = late_frame(rows)
            packets.append(Packet(0, "late", 0, 0, 0, late, None, None, 1_000, encode_frame(kept)))
        self.sink.commit(self.batch, packets)
        self.retain()
        self.seen[self.batch] = self.now()

    def retain(self) -> None:
        with self.connection.transaction(), self.connection.cursor() as cursor:
            retain(cursor, self.id, result_feed(self.output), KEEP, is_of_launch=True)

    def rewinds(self, batch: int) -> int:
        (commit,) = [each for each in retained_commits(self.connection, self.id) if each.batch_id == batch]
        with self.connection.transaction():
            removed = rewind(self.connection, self.id, self.output, commit, step_rows=3)
        self.batch = batch
        return removed

    def now(self) -> Any:
        """Everything that is to be seen of the query."""

        def rows(text: str) -> list[Any]:
            return sorted(self.connection.execute(text).fetchall(), key=repr)

        own = f"'{self.id}'"
        found = {
            "commit": rows(
                "SELECT batch_id, committed_at, position, stream_time_ms, detail, cursor - 'unread', layout FROM log.commit "
                f"WHERE query_id = {own}"
            ),
            "counters": rows(f"SELECT input, reason, count FROM log.counter WHERE owner = {own}"),
            "late": rows(f"SELECT record, replayed_at IS NULL FROM log.late_record WHERE query_id = {own}"),
            "log": [frame.rows() for frame in read_derived(self.connection, result_feed(self.output))],
            "heads": rows("SELECT partition, start_offset, next_offset FROM log.head h JOIN log.feed f ON f.id = h.feed_id"),
            "feed": rows("SELECT next_sequence, reached_ms FROM log.feed"),
            "states": {place: each.manifest for place, each in load_states(self.connection, self.id).items()},
        }  # fmt: skip
        if self.output.kind == "table":
            found["rows"] = rows("SELECT * FROM views.result")
        if self.output.history_retention_ms is not None:
            # What ended by the horizon is no more to be read, and goes when its key changes.
            stream_time_ms = found["commit"][0][3]
            found["versions"] = rows(
                f"SELECT * FROM history.result h WHERE NOT EXISTS (SELECT FROM history.result n WHERE n.k = h.k AND n._ts > h._ts AND n._ts <= "
                f"{stream_time_ms - self.output.history_retention_ms} {'AND n.window_end = h.window_end' if self.output.is_windowed else ''})"
            )
        return found


def packet(kind: Any, body: dict[str, Any]) -> Packet:
    return Packet(0, kind, 0, 0, 0, 0, None, None, 1_000, json.dumps(body).encode())


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with connect(dsn, "test") as opened:
        with opened.transaction():
            drop_view(opened, "result")
        opened.execute(
            "TRUNCATE log.feed, log.head, log.batch, log.commit, log.task_state, log.counter, log.late_record, log.retained_commit CASCADE"
        )
        yield opened


Make = Callable[[Output], Query]


@pytest.fixture
def make(connection: psycopg.Connection[Any], dsn: str) -> Iterator[Make]:
    made: list[Query] = []

    def one(result: Output) -> Query:
        made.append(Query(connection, dsn, result))
        return made[-1]

    yield one
    for query in made:
        query.sink.close()


def drawn(chance: random.Random, result: Output, at_ms: int, used: set[Any]) -> pl.DataFrame:
    """Return changes of a few keys: rows, and deletes where the result may have some; of final windows each once."""
    rows = []
    for _ in range(chance.randrange(1, 8)):
        name, n = f"k{chance.randrange(5)}", chance.randrange(100)
        if result.is_windowed:
            start = max(0, at_ms - chance.randrange(0, 30_000)) // 10_000 * 10_000
            if result.is_final and (name, start) in used:
                continue
            used.add((name, start))
            rows.append((name, instant(start), instant(start + 10_000), n, start + 10_000, 0))
        else:
            is_deleted = result.kind == "table" and chance.random() < 0.3
            ts = at_ms - chance.randrange(0, 15_000) if result.history_retention_ms is not None else at_ms
            key: Any = {"a": name, "b": 1} if result is NESTED else name
            rows.append((key, None if is_deleted else n, ts, int(is_deleted)))
    types = {name: kind.polars for name, kind in result.columns.items()}
    return pl.DataFrame(rows, schema={**types, "_ts": pl.Int64, "_op": pl.Int8}, orient="row")


def instant(ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "result",
    [STREAM, PLAIN, VERSIONED, WINDOWS, FINAL, VERSIONED_WINDOWS, NESTED],
    ids=["stream", "plain", "versioned", "windows", "final", "versioned_windows", "nested"],
)
def test_after_a_rewind_everything_is_as_it_was_and_goes_on_as_it_did(make: Make, result: Output, seed: int) -> None:
    chance = random.Random(seed)
    query, used = make(result), set[Any]()
    work = [(drawn(chance, result, at_ms, used), at_ms, chance.randrange(3)) for at_ms in range(10_000, 110_000, 10_000)]
    for frame, at_ms, late in work:
        query.commits(frame, at_ms, late)
    first = dict(query.seen)
    for target in sorted(chance.sample(range(10), 4), reverse=True):
        query.rewinds(target)
        assert query.now() == first[target]
    query.launch()
    for frame, at_ms, late in work[query.batch + 1 :]:
        query.commits(frame, at_ms, late)
        then, now = first[query.batch], query.seen[query.batch]
        for part in ("commit", "feed"):
            then, now = {**then, part: without_time(then[part])}, {**now, part: without_time(now[part])}
        assert now == then


def without_time(rows: list[Any]) -> str:
    """Return rows without the times of their commits and how long they took."""
    return repr([
        [
            {name: part for name, part in value.items() if name != "phases_ms"} if isinstance(value, dict) else value
            for value in row
            if not isinstance(value, dt.datetime)
        ]
        for row in rows
    ])  # fmt: skip


def test_tokens_are_new_and_the_log_says_that_it_was_rewound(make: Make) -> None:
    query = make(PLAIN)
    query.commits(changes(("a", 1)))
    before = load_states(query.connection, query.id)[0, 0].token
    query.commits(changes(("a", 2)))
    assert query.rewinds(0) == 1
    after = load_states(query.connection, query.id)[0, 0].token
    assert after != before
    assert query.connection.execute("SELECT rewound IS NOT NULL FROM log.feed").fetchone() == (True,)
    assert load_committed_state(query.connection, query.id, query.checkpoint).batch_id == 0
    assert [each.batch_id for each in retained_commits(query.connection, query.id)] == [0]


def test_a_sink_that_was_on_its_way_commits_nothing_behind_the_rewind(make: Make) -> None:
    query = make(PLAIN)
    for n in range(3):
        query.commits(changes(("a", n)))
    query.rewinds(0)
    with pytest.raises(Exception, match="put back to an earlier time"):
        query.sink.commit(3, [])


def changes(*rows: tuple[str, int | None], ts: int = 5) -> pl.DataFrame:
    told = [(key, n, ts, int(n is None)) for key, n in rows]
    return pl.DataFrame(told, schema={"k": pl.String, "n": pl.Int64, "_ts": pl.Int64, "_op": pl.Int8}, orient="row")


def trimmed(query: Query) -> None:
    """Let the beginning of the log go: as if it was older than the retention."""
    query.connection.execute("UPDATE log.batch SET appended_at = now() - interval '1 day' WHERE sequence < 2")
    (feed_id,) = query.connection.execute("SELECT id FROM log.feed").fetchone() or (0,)
    with query.connection.transaction():
        assert trim_sequence(query.connection, feed_id, HOUR_MS)


def test_a_log_without_its_beginning_serves_where_it_says_what_every_key_had(make: Make) -> None:
    query = make(PLAIN)
    query.commits(changes(("old", 1), ("a", 1)))
    query.commits(changes(("a", 2), ("b", 2)))
    query.commits(changes(("a", 3), ("b", None)))
    wanted = query.seen[1]["rows"]
    trimmed(query)
    query.rewinds(1)
    assert query.now()["rows"] == wanted


@pytest.mark.parametrize("touched", ["old", "new"])
def test_rows_that_cannot_be_told_are_refused_and_nothing_changes(make: Make, touched: str) -> None:
    query = make(PLAIN)
    query.commits(changes(("old", 1), ("a", 1)))
    query.commits(changes(("a", 2)))
    query.commits(changes((touched, 3)))
    trimmed(query)
    before = query.now()
    with pytest.raises(RowsUnknown, match="1 keys were changed since"):
        query.rewinds(1)
    assert query.now() == before
    assert len(retained_commits(query.connection, query.id)) == 3


def windows(*starts: int) -> pl.DataFrame:
    rows = [("k", instant(start), instant(start + 10_000), 1, start + 10_000, 0) for start in starts]
    types = {name: kind.polars for name, kind in WINDOWS.columns.items()}
    return pl.DataFrame(rows, schema={**types, "_ts": pl.Int64, "_op": pl.Int8}, orient="row")


def test_windows_that_begin_behind_the_removed_part_of_the_log_were_absent(make: Make) -> None:
    query = make(replace(WINDOWS, retention_ms=300_000))
    for frame, at_ms in ((windows(0, 10_000), 20_000), (windows(20_000), 30_000), (windows(520_000), 530_000)):
        query.commits(frame, at_ms)
    query.commits(windows(10_000, 540_000), 550_000)
    trimmed(query)
    query.rewinds(2)
    assert query.now()["rows"] == query.seen[2]["rows"]


def test_windows_that_have_left_since_are_refused_where_the_log_has_them_no_more(make: Make) -> None:
    query = make(FINAL)
    query.commits(windows(0, 10_000), 20_000)
    query.commits(windows(20_000), 30_000)
    query.commits(windows(60_000), 70_000)
    trimmed(query)
    with pytest.raises(RowsUnknown, match="left the result"):
        query.rewinds(1)


def test_replays_that_were_asked_for_since_are_undone(make: Make) -> None:
    query = make(PLAIN)
    query.commits(changes(("a", 1)), late=2)
    replay(query, "0/0")
    query.retain()
    query.commits(changes(("a", 2)))
    with query.connection.transaction():
        query.connection.execute("DELETE FROM log.retained_commit WHERE batch_id = 0")
    query.retain()
    replay(query, "0/1")
    query.commits(changes(("a", 3)))
    query.rewinds(1)
    found = query.connection.execute("SELECT record, replayed_at IS NOT NULL FROM log.late_record ORDER BY record").fetchall()
    assert found == [("0/0", True), ("0/1", False)]
    name = replay_feed(query.id)
    heads = query.connection.execute("SELECT next_offset FROM log.head JOIN log.feed ON id = feed_id WHERE name = %s", (name,))
    assert heads.fetchall() == [(1,)]


def replay(query: Query, record: str) -> None:
    """Ask for a replay as the service does."""
    with query.connection.transaction():
        feed = ensure_feed(query.connection, replay_feed(query.id), 1)
        append_batches(query.connection, feed.id, [(0, encode_batch(changes(("late", 1)), 0))])
        query.connection.execute("UPDATE log.late_record SET replayed_at = now() WHERE record = %s", (record,))


def ages(query: Query, seconds: int) -> None:
    query.connection.execute("UPDATE log.retained_commit SET retained_at = retained_at - %s * interval '1 s'", (seconds,))


def test_retained_commits_thin_out_with_age_and_go_after_the_retention(make: Make) -> None:
    query = make(PLAIN)
    query.sink.retaining = Retaining(60_000, 24 * HOUR_MS)
    counts = []
    for minute in range(26 * 60):
        query.batch += 1
        query.connection.execute(
            "UPDATE log.commit SET batch_id = %s, committed_at = now() WHERE query_id = %s", (query.batch, query.id)
        )
        ages(query, 60)
        with query.connection.transaction(), query.connection.cursor() as cursor:
            retain(cursor, query.id, result_feed(PLAIN), query.sink.retaining)
        if minute % 97 == 0:
            counts.append(query.connection.execute("SELECT count(*) FROM log.retained_commit").fetchone() or (0,))
    assert max(counts)[0] <= 50
    found = [query.batch - each.batch_id for each in retained_commits(query.connection, query.id)]
    assert found[:10] == list(range(10))
    assert 22 * 60 <= found[-1] <= 24 * 60
    gaps = [late - soon for soon, late in pairwise(found)]
    # Ages move every row through the hours here, so rows of two of them can meet in one.
    assert max(gaps) <= 120


def test_a_sink_retains_no_more_often_than_it_was_told(make: Make) -> None:
    query = make(PLAIN)
    query.sink.retaining = KEEP
    for batch in range(3):
        query.sink.commit(batch, [])
    assert [each.batch_id for each in retained_commits(query.connection, query.id)] == [0]
    query.launch()
    query.sink.retaining = KEEP
    query.sink.commit(3, [])
    assert [each.batch_id for each in retained_commits(query.connection, query.id)] == [0], "the launch before did lately"


def test_commits_are_retained_although_the_clock_was_set_back(make: Make) -> None:
    query = make(PLAIN)
    query.sink.retaining = KEEP
    query.sink.commit(0, [])
    ages(query, -24 * 3_600)
    query.launch()
    query.sink.retaining = KEEP
    for batch in (1, 2):
        query.sink.commit(batch, [])
    assert [each.batch_id for each in retained_commits(query.connection, query.id)] == [1, 0]


def test_launches_retain_what_they_go_on_from_the_newest_ones_only(make: Make) -> None:
    query = make(PLAIN)
    for batch in range(30):
        query.sink.commit(batch, [])
        query.retain()
        ages(query, 8_000)
    found = [each for each in retained_commits(query.connection, query.id) if each.is_of_launch]
    assert found[0].batch_id == 29
    assert 10 <= len(found) <= 22


def test_what_another_checkpoint_left_is_neither_listed_nor_kept(make: Make, dsn: str) -> None:
    query = make(PLAIN)
    query.commits(changes(("a", 1)))
    other: UUID = uuid4()
    claim_epoch(query.connection, query.id, other, 9)
    assert retained_commits(query.connection, query.id) == []
    begin_state(query.connection, query.id, 9, Layout(1), {"feeds": {}}, {})
    sink = Sink(dsn, query.plan, query.id, other, 9)
    sink.retaining = KEEP
    sink.commit(0, [])
    sink.close()
    assert [each.batch_id for each in retained_commits(query.connection, query.id)] == [0]


def test_a_commit_that_is_held_cannot_be_given_up_and_one_that_is_gone_is_not_held(make: Make, dsn: str) -> None:
    query = make(PLAIN)
    query.sink.commit(0, [])
    query.retain()
    with psycopg.connect(dsn) as rewinding, psycopg.connect(dsn, autocommit=True) as collecting:
        assert hold_retained(rewinding, query.id, 0)
        assert not hold_retained(rewinding, query.id, 1)
        collecting.execute("SET lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            collecting.execute("DELETE FROM log.retained_commit WHERE query_id = %s", (query.id,))
        rewinding.rollback()
        collecting.execute("DELETE FROM log.retained_commit WHERE query_id = %s", (query.id,))
        assert not hold_retained(rewinding, query.id, 0)

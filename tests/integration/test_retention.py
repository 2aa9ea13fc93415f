"""Which segments the collector takes away, and when: never what a manifest names or may come to name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import polars as pl
import psycopg
import pytest
from psycopg.types.json import Jsonb
from structlog.testing import capture_logs

from app.driver.collecting import Collecting, collector_lock
from engine.commit.history.segment_collector import MOST_SEGMENTS, SETTLED_BATCHES, Collector, Look, Retention, delete_state
from engine.commit.history.state_owners import SAID_FOR_S
from engine.commit.task_states import TaskState, write_states
from engine.errors import ExternalError
from engine.postgres.postgres import connect
from engine.postgres.schemas import schemas_of
from engine.state.segments.directories import Directories
from engine.state.segments.in_manifest import ManifestSegmentStore
from tests.integration.driver_tools import until

ROOT = UUID(int=1)
FRAME = pl.DataFrame({"n": [1, 2, 3]})
DAY_MS = 86_400_000
PLENTY = Retention(DAY_MS, 1 << 40)


class Query:
    """A query with one task, whose commits are made by hand."""

    def __init__(self, connection: psycopg.Connection[Any], root: Path) -> None:
        self._connection = connection
        self.id, self.checkpoint = uuid4(), uuid4()
        self.place = Directories(root).below(str(self.id))
        self._epoch, self._batch = 1, -1
        self._folder = "segments"
        connection.execute(
            "INSERT INTO log.commit (query_id, checkpoint_id, epoch, layout) VALUES (%s, %s, 1, %s)",
            (self.id, self.checkpoint, Jsonb({"segments": "segments"})),
        )

    def writes(self) -> str:
        """Write a segment; returns its name."""
        own = self.place.below(str(self.checkpoint)).task(f"{self._folder}/0/0")
        return f"{self.checkpoint}/{self._folder}/0/0/{own.save(FRAME)}.arrow"

    def commits(self, *named: str, batches: int = 1) -> None:
        self._batch += batches
        manifest = {"operators": [{"segment": Path(name).stem} for name in named]}
        with self._connection.cursor() as cursor:
            write_states(cursor, self.id, {(0, 0): TaskState.of(manifest)})
            cursor.execute("UPDATE log.commit SET batch_id = %s WHERE query_id = %s", (self._batch, self.id))

    def launches(self) -> None:
        self._epoch += 1
        self._connection.execute("UPDATE log.commit SET epoch = %s WHERE query_id = %s", (self._epoch, self.id))

    def retains(self) -> None:
        """Retain the newest commit."""
        empty = "false, now(), '{}', '{}', '{}', '[]', 0"
        names = ("query_id", "batch_id", "checkpoint_id", "layout")
        self._connection.execute(
            f"INSERT INTO log.retained_commit ({', '.join(names)}, is_of_launch, committed_at, position, detail, cursor, counters, "
            f"next_sequence) SELECT {', '.join(names)}, {empty} FROM log.commit WHERE query_id = %s",
            (self.id,),
        )
        self._connection.execute(
            "INSERT INTO log.retained_state (query_id, batch_id, stage, task, manifest) SELECT s.query_id, c.batch_id, stage, task, manifest "
            "FROM log.task_state s JOIN log.commit c ON c.query_id = s.query_id WHERE s.query_id = %s",
            (self.id,),
        )

    @property
    def retained(self) -> list[int]:
        found = self._connection.execute(
            "SELECT batch_id FROM log.retained_commit WHERE query_id = %s ORDER BY batch_id", (self.id,)
        )
        return [batch_id for (batch_id,) in found]

    def moves_to(self, folder: str) -> None:
        """Write from here on into another folder, which does not count yet."""
        self._folder = folder

    def lays_out(self) -> None:
        values = (Jsonb({"segments": self._folder}), self.id)
        self._connection.execute("UPDATE log.commit SET layout = %s WHERE query_id = %s", values)

    def begins_anew(self) -> None:
        self.checkpoint = uuid4()
        values = (self.checkpoint, self.id)
        self._connection.execute(
            "UPDATE log.commit SET checkpoint_id = %s, layout = NULL, batch_id = NULL WHERE query_id = %s", values
        )
        self._connection.execute("DELETE FROM log.task_state WHERE query_id = %s", (self.id,))

    def ages(self, ms: int) -> None:
        """Let time pass for what was noted."""
        self._connection.execute(
            "UPDATE log.orphan_segment SET since = since - %s * interval '1 ms' WHERE query_id = %s", (ms, self.id)
        )

    @property
    def there(self) -> set[str]:
        return {found.name for found in self.place.listed()}

    @property
    def noted(self) -> set[str]:
        found = self._connection.execute("SELECT name FROM log.orphan_segment WHERE query_id = %s", (self.id,))
        return {name for (name,) in found}

    @property
    def reaches_back(self) -> bool:
        """Whether nothing is gone yet."""
        return self._connection.execute("SELECT FROM log.state_retention WHERE query_id = %s", (self.id,)).fetchone() is None


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with connect(dsn, "test") as opened:
        opened.execute(
            "TRUNCATE log.commit, log.task_state, log.orphan_segment, log.state_retention, log.deleted_state, log.retained_commit CASCADE"
        )
        yield opened


@pytest.fixture
def query(connection: psycopg.Connection[Any], tmp_path: Path) -> Query:
    return Query(connection, tmp_path)


@pytest.fixture
def look(connection: psycopg.Connection[Any], tmp_path: Path) -> Any:
    def once(retention: Retention = PLENTY) -> Look:
        return Collector(Directories(tmp_path), ROOT, retention).look(connection)

    return once


def test_what_no_manifest_names_stays_for_the_retention_and_then_goes(query: Query, look: Any) -> None:
    first = query.writes()
    query.commits(first)
    second = query.writes()
    query.commits(second)
    assert look() == Look(0, 0, is_pressing=False)
    assert (query.there, query.noted) == ({first, second}, {first})
    query.commits(second, batches=SETTLED_BATCHES)
    query.ages(DAY_MS - 60_000)
    assert look().removed == 0
    assert query.reaches_back
    query.ages(60_000)
    assert look().removed == 1
    assert (query.there, query.noted, query.reaches_back) == ({second}, set(), False)


def test_what_an_attempt_may_still_commit_stays_however_old_it_is(query: Query, look: Any) -> None:
    none = Retention(0, 0)
    query.commits()
    written = query.writes()
    look(none)
    query.ages(100 * DAY_MS)
    for _ in range(SETTLED_BATCHES - 1):
        query.commits()
        assert look(none) == Look(0, 0, is_pressing=True)
    assert query.there == {written}
    query.commits(written)
    look(none)
    assert (query.there, query.noted) == ({written}, set()), "it was committed"


def test_what_a_launch_before_left_goes_once_another_has_the_fence(query: Query, look: Any) -> None:
    query.commits()
    left = query.writes()
    look(none := Retention(0, 0))
    assert query.there == {left}
    query.launches()
    assert look(none).removed == 1
    assert query.there == set()


def test_a_database_that_was_put_back_takes_what_it_names_off_the_list(query: Query, look: Any) -> None:
    first = query.writes()
    query.commits(first)
    second = query.writes()
    query.commits(second, batches=10)
    look()
    query.commits(first, batches=-9)  # as of a dump
    query.launches()
    look()
    assert query.noted == {second}
    query.ages(100 * DAY_MS)
    query.commits(first, batches=SETTLED_BATCHES)
    look()
    assert query.there == {first}


def test_a_segment_that_is_named_again_begins_its_time_anew(query: Query, look: Any) -> None:
    segment = query.writes()
    query.commits()
    look()
    query.ages(100 * DAY_MS)
    query.commits(segment)
    look()
    query.commits(batches=100)
    assert look().removed == 0
    assert (query.there, query.noted) == ({segment}, {segment})


def test_beyond_the_bound_the_oldest_go_before_their_time(query: Query, look: Any) -> None:
    written = [query.writes() for _ in range(4)]
    size = query.place.listed()[0].size_bytes
    for number in range(4):
        query.commits(*written[number + 1 :])
        look()
    query.commits(batches=SETTLED_BATCHES)
    assert look(Retention(DAY_MS, 2 * size)) == Look(2, 2 * size, is_pressing=False)
    assert query.there == {*written[2:]}
    assert look(Retention(DAY_MS, 2 * size, most_segments=1)).removed == 1
    assert query.there == {written[3]}
    assert MOST_SEGMENTS > 1


def test_on_a_disk_that_is_nearly_full_nothing_stays_that_is_not_named(
    query: Query, connection: psycopg.Connection[Any], tmp_path: Path, look: Any
) -> None:
    class Full(Directories):
        @property
        def is_nearly_full(self) -> bool:
            return True

    named = query.writes()
    query.writes()
    query.commits(named)
    look()
    query.commits(named, batches=SETTLED_BATCHES)
    assert Collector(Full(tmp_path), ROOT, PLENTY).look(connection).removed == 1
    assert query.there == {named}


def test_folders_of_other_numbers_of_tasks_and_discarded_checkpoints_stay_as_long(query: Query, look: Any) -> None:
    before = query.writes()
    query.commits(before)
    query.launches()
    query.moves_to("segments-1-2")
    shared_out = query.writes()
    look(none := Retention(0, 0))
    assert query.there == {before, shared_out}, "a launch is sharing state out"
    query.lays_out()
    query.commits(shared_out)
    look()
    assert query.noted == {before}
    query.begins_anew()
    query.launches()
    look()
    assert query.noted == {before, shared_out}
    query.launches()
    look(none)
    assert query.there == set()


def test_state_that_no_launch_has_taken_over_is_not_judged(query: Query, look: Any) -> None:
    segment = query.writes()
    query.begins_anew()
    query.checkpoint = UUID(segment[:36])
    query._connection.execute("UPDATE log.commit SET checkpoint_id = %s", (query.checkpoint,))
    query.launches()
    look(none := Retention(0, 0))
    query.launches()
    look(none)
    assert (query.there, query.noted) == ({segment}, set())


def test_queries_of_other_databases_in_the_same_place_are_left_alone(
    query: Query, connection: psycopg.Connection[Any], look: Any
) -> None:
    segment = query.writes()
    connection.execute("DELETE FROM log.commit")
    look(Retention(0, 0))
    assert (query.there, query.noted) == ({segment}, set())


@pytest.mark.parametrize("is_deleted", [False, True], ids=["goes on", "is deleted"])
def test_a_copy_of_the_database_leaves_the_state_to_the_original_that_looks_after_it(
    query: Query, look: Any, tmp_path: Path, empty_migrated: str, *, is_deleted: bool
) -> None:
    query.commits(kept := query.writes())
    look()
    with connect(empty_migrated, "test") as copied:
        copied.execute(
            "INSERT INTO log.commit (query_id, checkpoint_id, epoch, layout) VALUES (%s, %s, 1, %s)",
            (query.id, query.checkpoint, Jsonb({"segments": "segments"})),
        )

        def copy_looks() -> None:
            """Let the copy have a launch of its own, and look behind it: it names nothing."""
            copied.execute("UPDATE log.commit SET epoch = epoch + 1")
            if is_deleted:
                delete_state(copied, query.id, ROOT)
            Collector(Directories(tmp_path), ROOT, Retention(0, 1 << 40)).look(copied)

        for _ in range(3):
            copy_looks()
        assert query.there == {kept}
        store, name = Directories(tmp_path), str(query.id)
        store.note_owner(name, json.dumps({**json.loads(store.owner(name) or b""), "at": 0}).encode())
        for _ in range(3):
            copy_looks()
        assert query.there == set(), "nobody has looked after it for long"


def test_who_looks_after_the_state_of_a_query_says_so_again_and_again(
    query: Query, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    now = [0.0]
    store = Directories(tmp_path)
    collector = Collector(store, ROOT, PLENTY, lambda: now[0])
    said = []
    for now[0] in (0.0, 1.0, SAID_FOR_S):
        query.commits(query.writes())
        collector.look(connection)
        said.append(store.owner(str(query.id)))
    assert said[0] == said[1] != said[2]


def test_tiny_segments_in_manifests_are_not_looked_for(query: Query, connection: psycopg.Connection[Any], look: Any) -> None:
    store = ManifestSegmentStore(query.place.task("segments/0/0"))
    manifest = store.completed({"operators": [{"segment": store.save(FRAME)}]})
    with connection.cursor() as cursor:
        write_states(cursor, query.id, {(0, 0): TaskState.of(manifest)})
    assert look() == Look(0, 0, is_pressing=False)
    assert (query.there, query.noted) == (set(), set())


def test_another_place_of_the_same_query_has_a_list_of_its_own(
    query: Query, connection: psycopg.Connection[Any], tmp_path: Path, look: Any
) -> None:
    query.commits()
    query.writes()
    look()
    Collector(Directories(tmp_path / "elsewhere"), UUID(int=2), PLENTY).look(connection)
    assert len(query.noted) == 1


def test_only_queries_that_committed_or_have_something_due_are_looked_at_again(
    query: Query, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    asked: list[str] = []

    class Counted(Directories):
        def listed(self) -> Any:
            asked.append(self.root.name)
            return super().listed()

    collector = Collector(Counted(tmp_path), ROOT, PLENTY)
    query.commits()
    query.writes()
    for _ in range(3):
        collector.look(connection)
    assert asked == [str(query.id)]
    query.commits()
    collector.look(connection)
    query.ages(2 * DAY_MS)
    collector.look(connection)
    assert len(asked) == 3


def test_of_a_deleted_query_everything_goes_with_the_next_look(
    query: Query, connection: psycopg.Connection[Any], tmp_path: Path, look: Any
) -> None:
    query.commits()
    other = Query(connection, tmp_path)
    kept = other.writes()
    query.writes()
    other.commits(kept)
    with connection.transaction():
        connection.execute("DELETE FROM log.commit WHERE query_id = %s", (query.id,))
        delete_state(connection, query.id, ROOT)
    Collector(Directories(tmp_path / "elsewhere"), UUID(int=2), PLENTY).look(connection)
    assert query.there
    look()
    assert (query.there, other.there) == (set(), {kept})
    assert connection.execute("SELECT FROM log.deleted_state").fetchall() == []


def test_one_driver_of_a_place_looks_at_a_time(
    query: Query, connection: psycopg.Connection[Any], dsn: str, tmp_path: Path
) -> None:
    query.commits()
    query.writes()
    mine = Collecting(dsn, Directories(tmp_path), ROOT, PLENTY)
    connection.execute("SELECT pg_advisory_lock(%s)", (schemas_of(connection).lock(collector_lock(ROOT)),))
    assert (mine.look(), query.noted) == (None, set())
    assert Collecting(dsn, Directories(tmp_path), UUID(int=2), PLENTY).look() is not None
    connection.execute("SELECT pg_advisory_unlock_all()")
    assert mine.look() == Look(0, 0, is_pressing=False)


def test_a_place_that_is_away_is_discovered_later(query: Query, dsn: str, tmp_path: Path) -> None:
    class Away(Directories):
        def listed(self) -> Any:
            raise ExternalError("the state cannot be listed now")

    query.commits()
    with capture_logs() as told:
        assert Collecting(dsn, Away(tmp_path), ROOT, PLENTY).look() is None
    assert [line["event"] for line in told] == ["state_not_looked_at"]


def test_the_thread_looks_again_and_again_and_sooner_where_too_much_is_there(
    query: Query, connection: psycopg.Connection[Any], dsn: str, tmp_path: Path
) -> None:
    query.commits()
    query.writes()
    collecting = Collecting(dsn, Directories(tmp_path), ROOT, Retention(0, 0), every_s=0.05)
    collecting.start()
    try:
        until("noted", lambda: query.noted)
        query.launches()
        until("removed", lambda: not query.there)
    finally:
        collecting.stop()


def test_what_a_retained_commit_names_is_neither_noted_nor_removed(query: Query, look: Any) -> None:
    first = query.writes()
    query.commits(first)
    query.retains()
    second = query.writes()
    query.commits(second, batches=SETTLED_BATCHES + 1)
    query.launches()
    assert look(Retention(0, 1 << 40)) == Look(0, 0, is_pressing=False)
    assert (query.there, query.noted, query.retained) == ({first, second}, set(), [0])


def test_the_oldest_retained_commits_are_given_up_where_they_hold_too_much(query: Query, look: Any) -> None:
    names = []
    for _ in range(4):
        names.append(query.writes())
        query.commits(names[-1])
        query.retains()
    size = next(found.size_bytes for found in query.place.listed())
    query.launches()
    look(Retention(DAY_MS, 4 * size))
    assert query.retained == [1, 2, 3]
    assert query.noted == {names[0]}
    query.commits(names[-1], batches=SETTLED_BATCHES)
    look(Retention(DAY_MS, 1 << 40, most_segments=2))
    assert query.retained == [2, 3]


def test_a_query_that_was_rewound_names_its_segments_again(
    query: Query, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    collector = Collector(Directories(tmp_path), ROOT, Retention(0, 1 << 40))
    first = query.writes()
    query.commits(first)
    query.retains()
    second = query.writes()
    query.commits(second, batches=SETTLED_BATCHES + 1)
    query.retains()
    collector.look(connection)
    query.commits(first, batches=-SETTLED_BATCHES - 1)
    connection.execute("DELETE FROM log.retained_commit")
    collector.look(connection)
    assert query.noted == {second}
    assert query.there == {first, second}


def test_retained_commits_go_with_the_query(query: Query, connection: psycopg.Connection[Any]) -> None:
    query.commits(query.writes())
    query.retains()
    with connection.transaction():
        delete_state(connection, query.id, ROOT)
    assert query.retained == []


def test_on_a_disk_that_is_nearly_full_no_retained_commit_holds_segments(
    query: Query, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    room = [True]

    class Filling(Directories):
        @property
        def is_nearly_full(self) -> bool:
            return not room

    collector = Collector(Filling(tmp_path), ROOT, PLENTY)
    query.commits(query.writes())
    query.retains()
    query.commits(query.writes())
    collector.look(connection)
    assert query.retained == [0]
    room.clear()
    collector.look(connection)
    assert query.retained == []
    assert len(query.noted) == 1

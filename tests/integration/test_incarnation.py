"""A database that was put back is known as such: restored from a dump, copied, set back below what a driver has seen, or said to be."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from app.driver.state_root import StateRoot, StateRootDamaged
from engine.connectors.incarnation import current, mark, notice, renew
from engine.connectors.log import append_batches, encode_batch, ensure_feed
from engine.connectors.postgres import Connection, connect
from engine.errors import StateCorrupt
from engine.plan.model import Feed
from engine.spark.inspection import write_synced
from engine.spark.one_history import require_one_history
from tests.conftest import database

FEED = Feed("log:orders", "log", "orders")


@pytest.fixture
def connection(dsn: str) -> Iterator[Connection]:
    untouched = "UPDATE log.incarnation SET id = NULL, fingerprint = NULL"
    with connect(dsn, "test") as connection:
        connection.execute(untouched)
        connection.execute("TRUNCATE log.feed CASCADE")
        yield connection
    with connect(dsn, "test") as connection:
        connection.execute(untouched)


def test_a_database_that_nobody_touched_stays_in_its_first_incarnation(connection: Connection) -> None:
    seen = mark(connection)
    assert not notice(connection, seen)
    assert not notice(connection, mark(connection))
    assert current(connection) is None


def test_a_restored_copy_begins_a_new_incarnation_once(connection: Connection, postgres_dsn: str) -> None:
    notice(connection)
    original = connection.info.dbname
    connection.close()
    with database(postgres_dsn, "restored", original) as dsn, connect(dsn, "test") as restored:
        assert notice(restored)
        first = current(restored)
        assert first is not None
        assert not notice(restored)
        assert current(restored) == first


def test_a_log_that_ends_before_what_a_driver_saw_was_put_back(connection: Connection, tmp_path: Path) -> None:
    notice(connection)
    root = StateRoot.open(tmp_path)
    assert root.seen() is None
    now = mark(connection)
    root.note(replace(now, wal_bytes=now.wal_bytes + 10**9))
    assert notice(connection, StateRoot.open(tmp_path).seen())
    assert current(connection) is not None
    # Another driver, which saw the same, begins no other one; and of another cluster the fingerprint tells.
    assert not notice(connection, root.seen())
    assert not notice(connection, replace(now, cluster="1", wal_bytes=2**62))
    # Put back once more, behind the beginning of this one.
    assert notice(connection, replace(mark(connection), began_at=now.began_at + 10**9))


def test_an_old_dump_beside_what_a_driver_has_seen_is_known_though_nobody_looked_at_it_before(connection: Connection) -> None:
    seen = mark(connection)
    assert notice(connection, replace(seen, cluster="1"))
    assert current(connection) is not None


def test_looking_writes_nothing_so_that_a_database_that_only_reads_can_be_looked_at(connection: Connection) -> None:
    notice(connection)
    connection.execute("SET default_transaction_read_only = on")
    assert not notice(connection, mark(connection))


def test_a_mark_that_cannot_be_kept_ends_nobody(tmp_path: Path, connection: Connection) -> None:
    root = StateRoot.open(tmp_path / "root")
    shutil.rmtree(tmp_path / "root")
    root.note(mark(connection))
    assert root.seen() is None


def test_a_root_keeps_its_id_and_refuses_a_file_that_is_none(tmp_path: Path) -> None:
    first = StateRoot.open(tmp_path / "a")
    assert StateRoot.open(tmp_path / "a").id == first.id
    assert StateRoot.open(tmp_path / "b").id != first.id
    (tmp_path / "a" / "root.json").write_text("{}")
    with pytest.raises(StateRootDamaged, match=r"root\.json is damaged"):
        StateRoot.open(tmp_path / "a")


class Checkpoint:
    """The part of a checkpoint directory that is looked at."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def planned(self, number: int, position: int, incarnation: uuid.UUID | None = None) -> Checkpoint:
        of = {} if incarnation is None else {"incarnation": str(incarnation)}
        offsets = {"feeds": {FEED.name: {"0": position}}, **of}
        write_synced(self._path("offsets", number), f"v1\n{{}}\n{json.dumps(offsets)}")
        return self

    def done(self, number: int) -> Checkpoint:
        write_synced(self._path("commits", number), "v1\n{}")
        return self

    def _path(self, kind: str, number: int) -> Path:
        path = self.directory / "spark" / kind / str(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


@pytest.fixture
def checkpoint(connection: Connection, tmp_path: Path) -> Checkpoint:
    """A checkpoint beside a log of five records."""
    records = pl.DataFrame({"_ts": list(range(5)), "_op": [0] * 5, "n": [0] * 5})
    feed = ensure_feed(connection, FEED.log_feed, 1)
    append_batches(connection, feed.id, [(0, encode_batch(records, 0))])
    return Checkpoint(tmp_path)


def test_a_checkpoint_of_the_same_history_is_believed(connection: Connection, checkpoint: Checkpoint) -> None:
    require_one_history(connection, checkpoint.directory, None, [FEED], {FEED.name: {"0": 5}})
    checkpoint.planned(0, 3)
    require_one_history(connection, checkpoint.directory, None, [FEED], {})
    require_one_history(connection, checkpoint.directory, 0, [FEED], {})
    checkpoint.done(0).planned(1, 5)
    require_one_history(connection, checkpoint.directory, 0, [FEED], {})
    renew(connection)
    checkpoint.planned(1, 5, current(connection))
    require_one_history(connection, checkpoint.directory, 0, [FEED], {})


def test_results_that_are_older_than_the_checkpoint_are_refused_at_the_launch(
    connection: Connection, checkpoint: Checkpoint
) -> None:
    checkpoint.planned(0, 3).done(0).planned(1, 5)
    for results in (None,):
        with pytest.raises(StateCorrupt, match=r"results hold no batch.*PUT /v1/queries/<name>\?state=discard"):
            require_one_history(connection, checkpoint.directory, results, [FEED], {})
    checkpoint.done(1)
    with pytest.raises(StateCorrupt, match="results hold batch 0"):
        require_one_history(connection, checkpoint.directory, 0, [FEED], {})
    require_one_history(connection, checkpoint.directory, 1, [FEED], {})


def test_a_plan_behind_the_end_of_the_log_is_refused(connection: Connection, checkpoint: Checkpoint) -> None:
    checkpoint.planned(0, 3).planned(1, 8)
    with pytest.raises(StateCorrupt, match="goes on at 8, but the feed ends at 5"):
        require_one_history(connection, checkpoint.directory, 0, [FEED], {})
    with pytest.raises(StateCorrupt, match="goes on at 6, but the feed ends at 5"):
        require_one_history(connection, checkpoint.directory.parent, None, [FEED], {FEED.name: {"0": 6}})


def test_a_batch_that_was_planned_before_the_database_was_put_back_is_planned_anew(
    connection: Connection, checkpoint: Checkpoint
) -> None:
    checkpoint.planned(0, 3).planned(1, 5)
    renew(connection)
    offsets = checkpoint.directory / "spark" / "offsets"
    # What the results hold already is not read again.
    require_one_history(connection, checkpoint.directory, 1, [FEED], {})
    assert (offsets / "1").exists()
    require_one_history(connection, checkpoint.directory, 0, [FEED], {})
    assert [path.name for path in offsets.iterdir()] == ["0"]
    # Behind the end of the log it shows that records are gone.
    checkpoint.planned(1, 8)
    with pytest.raises(StateCorrupt, match="goes on at 8, but the feed ends at 5"):
        require_one_history(connection, checkpoint.directory, 0, [FEED], {})

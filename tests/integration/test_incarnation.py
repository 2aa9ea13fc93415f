"""A database that was put back is known as such: restored from a dump, copied, set back below what a driver has seen, or said to be."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.driver.state_root import StateRoot, StateRootDamaged
from engine.postgres.incarnation import current, mark, notice
from engine.postgres.postgres import Connection, connect
from engine.state.segments.directories import Directories
from tests.conftest import database


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
    root = StateRoot.open(tmp_path, Directories(tmp_path))
    assert root.last_mark() is None
    now = mark(connection)
    root.note(replace(now, wal_bytes=now.wal_bytes + 10**9))
    assert notice(connection, StateRoot.open(tmp_path, Directories(tmp_path)).last_mark())
    assert current(connection) is not None
    # Another driver, which saw the same, begins no other one; and of another cluster the fingerprint tells.
    assert not notice(connection, root.last_mark())
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
    root = StateRoot.open(tmp_path / "root", Directories(tmp_path))
    shutil.rmtree(tmp_path / "root")
    root.note(mark(connection))
    assert root.last_mark() is None


def test_a_root_keeps_its_id_and_refuses_a_file_that_is_none(tmp_path: Path) -> None:
    first = StateRoot.open(tmp_path / "a", Directories(tmp_path))
    assert StateRoot.open(tmp_path / "a", Directories(tmp_path)).id == first.id
    assert StateRoot.open(tmp_path / "b", Directories(tmp_path)).id != first.id
    (tmp_path / "a" / "root.json").write_text("{}")
    with pytest.raises(StateRootDamaged, match=r"root\.json is damaged"):
        StateRoot.open(tmp_path / "a", Directories(tmp_path))

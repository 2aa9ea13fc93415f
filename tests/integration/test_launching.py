"""Taking a query over from a launch that cannot let go of it, and from one that wakes up late."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb
from structlog.testing import capture_logs

from app.catalog.stored.state_files import checkpoint_directory, query_directory
from app.driver.launches.launching import FencedLauncher, discard_query
from app.driver.launches.ports import LaunchOrder
from engine.errors import EpochFenced
from engine.postgres.fence import cut_off_older, sink_name


class Idle:
    """A handle, and the runner that gives it, of a query that does nothing."""

    is_active = True
    phase = None
    is_alive = True

    def open(self) -> None:
        pass

    def close(self) -> None:
        pass

    def launch(self, _order: LaunchOrder) -> Idle:
        return self

    def error(self) -> Exception | None:
        return None

    def stop(self, _timeout_s: float) -> bool:
        return True


def order(query: UUID, checkpoint: UUID, epoch: int, note_phase: Callable[[str], None] = lambda _phase: None) -> LaunchOrder:
    return LaunchOrder(query, "q", {}, checkpoint, 1, epoch, note_phase)


@pytest.fixture
def control(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def launcher(dsn: str, tmp_path: Path) -> Iterator[FencedLauncher]:
    with closing(FencedLauncher(dsn, tmp_path, Idle())) as made:
        yield made


@pytest.fixture
def stored(control: psycopg.Connection[Any]) -> Callable[[UUID, UUID], None]:
    """Store a query with its checkpoint."""

    def store(query: UUID, checkpoint: UUID) -> None:
        control.execute(
            "INSERT INTO slackwater.query (id, name, definition, desired_state, checkpoint_id) VALUES (%s, %s, %s, 'running', %s)",
            (query, str(query), Jsonb({}), checkpoint),
        )

    return store


def frozen_in_a_commit(dsn: str, query: UUID, epoch: int) -> psycopg.Connection[Any]:
    """Return the connection of a sink that holds the fence's row and is never heard of again."""
    connection = psycopg.connect(dsn, application_name=sink_name(query, epoch))
    connection.execute("SELECT 1 FROM log.commit WHERE query_id = %s FOR UPDATE", (query,))
    return connection


def test_a_launch_cuts_off_a_commit_that_never_ends(
    dsn: str, control: psycopg.Connection[Any], launcher: FencedLauncher, stored: Callable[[UUID, UUID], None]
) -> None:
    query, checkpoint = uuid4(), uuid4()
    stored(query, checkpoint)
    launcher(order(query, checkpoint, 1))
    frozen = frozen_in_a_commit(dsn, query, 1)
    other = psycopg.connect(dsn, application_name=sink_name(uuid4(), 1))
    launcher(order(query, checkpoint, 2))
    row = control.execute("SELECT epoch FROM log.commit WHERE query_id = %s", (query,)).fetchone()
    assert row == (2,)
    with pytest.raises(psycopg.OperationalError):
        frozen.execute("SELECT 1")
    other.execute("SELECT 1")
    frozen.close()
    other.close()


def test_a_launch_that_wakes_up_late_cuts_nobody_off(
    dsn: str, control: psycopg.Connection[Any], launcher: FencedLauncher, stored: Callable[[UUID, UUID], None]
) -> None:
    query, checkpoint = uuid4(), uuid4()
    stored(query, checkpoint)
    launcher(order(query, checkpoint, 3))
    with psycopg.connect(dsn, application_name=sink_name(query, 3)) as newer:
        with pytest.raises(EpochFenced):
            launcher(order(query, checkpoint, 2))
        assert cut_off_older(control, query, 3) == 0
        newer.execute("SELECT 1")


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE slackwater.query SET checkpoint_id = gen_random_uuid() WHERE id = %s",
        "UPDATE slackwater.query SET deleted_at = now() WHERE id = %s",
        "DELETE FROM slackwater.query WHERE id = %s",
    ],
    ids=["begun anew", "deleted", "purged"],
)
def test_a_launch_that_was_ordered_before_its_query_was_deleted_or_began_anew_takes_no_fence(
    control: psycopg.Connection[Any], launcher: FencedLauncher, stored: Callable[[UUID, UUID], None], edit: str
) -> None:
    query, checkpoint = uuid4(), uuid4()
    stored(query, checkpoint)
    control.execute(edit, (query,))
    with pytest.raises(EpochFenced):
        launcher(order(query, checkpoint, 1))
    assert control.execute("SELECT FROM log.commit WHERE query_id = %s", (query,)).rowcount == 0


def test_a_launch_removes_discarded_state_but_nothing_that_a_newer_one_made(
    launcher: FencedLauncher, tmp_path: Path, stored: Callable[[UUID, UUID], None]
) -> None:
    query, discarded, own, newer = uuid4(), uuid4(), uuid4(), uuid4()
    stored(query, own)
    directories = {each: checkpoint_directory(tmp_path, query, each) for each in (discarded, own, newer)}
    for each in (discarded, own):
        directories[each].mkdir(parents=True)

    def a_newer_one_begins(_phase: str) -> None:
        # From here on the launch may be frozen for as long as it likes.
        directories[newer].mkdir(exist_ok=True)

    launcher(order(query, own, 1, a_newer_one_begins))
    assert {each for each, directory in directories.items() if directory.exists()} == {own, newer}


def test_the_name_of_a_sink_fits_what_postgres_keeps(dsn: str) -> None:
    name = sink_name(uuid4(), 2**31)
    with psycopg.connect(dsn, application_name=name) as connection:
        assert connection.execute("SELECT current_setting('application_name')").fetchone() == (name,)


def test_what_cannot_be_removed_is_told(tmp_path: Path) -> None:
    query_id = uuid4()
    in_the_way = query_directory(tmp_path, query_id)
    in_the_way.parent.mkdir(parents=True, exist_ok=True)
    in_the_way.write_text("not a directory")
    with capture_logs() as told:
        discard_query(tmp_path, query_id)
        discard_query(tmp_path, uuid4())
    assert [(line["event"], line["path"]) for line in told] == [("directory_not_removed", str(in_the_way))]

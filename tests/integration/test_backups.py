"""Backups of database and checkpoints: what is put back, and what is refused. With queries that run: ``tests/faults/test_backup.py``."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import polars as pl
import pytest
from psycopg.types.json import Jsonb
from typer.testing import CliRunner

from app.access.scopes import PREFIX
from app.cli.commands import cli
from app.upkeep.backups import BackupFailed, Contents, back_up, paused_deliveries, put_back
from engine.commit.task_states import TaskState, write_states
from engine.postgres.incarnation import current
from engine.postgres.postgres import connect
from engine.state.segments.directories import Directories
from engine.state.segments.objects import Objects
from engine.state.segments.segment_cache import SegmentCache
from tests.integration.driver_tools import Control

TIMEOUT_S = 5.0


@pytest.fixture
def control(dsn: str) -> Iterator[Control]:
    control = Control(dsn)
    yield control
    control.close()


@pytest.fixture
def checkpoints(dsn: str, tmp_path: Path) -> Path:
    with connect(dsn, "test") as connection:
        connection.execute("TRUNCATE log.commit, log.task_state")
    directory = tmp_path / "checkpoints" / "query"
    directory.mkdir(parents=True)
    (directory / "state").write_text("state")
    return directory.parent


def desired_states(dsn: str) -> dict[str, str]:
    with connect(dsn, "test") as connection:
        return dict(connection.execute("SELECT name, desired_state FROM slackwater.query").fetchall())


def test_a_backup_holds_database_and_checkpoints_and_queries_run_again_when_it_is_put_back(
    dsn: str, empty: str, control: Control, checkpoints: Path, tmp_path: Path
) -> None:
    control.add()
    delivering = control.add(wants="stopped")
    control.execute(
        "INSERT INTO slackwater.delivery (query_id, id, definition, position, planned) VALUES (%s, %s, '{}', 3, 5)",
        delivering,
        uuid4(),
    )
    before = desired_states(dsn)
    made = back_up(dsn, checkpoints, Directories(checkpoints), tmp_path / "backup", TIMEOUT_S)
    assert desired_states(dsn) == before
    assert set(made.queries) == {name for name, desired in before.items() if desired == "running"}
    assert put_back(empty, tmp_path / "there", Directories(tmp_path / "there"), tmp_path / "backup") == made
    assert desired_states(empty) == before
    assert (tmp_path / "there" / "query" / "state").read_text() == "state"
    with connect(empty, "test") as connection:
        assert current(connection) is not None, "cursors from before the backup was put back count no more"
        said = "SELECT is_stopped, error->>'code', position, planned FROM slackwater.delivery"
        assert connection.execute(said).fetchall() == [(True, "delivery_put_back", 3, 5)], "the original may still deliver there"
    assert paused_deliveries(empty) == 1
    with connect(dsn, "test") as connection:
        assert connection.execute("SELECT is_stopped FROM slackwater.delivery").fetchall() == [(False,)]


def segment(dsn: str, checkpoints: Path, *, has_layout: bool = True) -> Path:
    """Write a segment of a query that has committed it; returns its path below the directory."""
    query, checkpoint = uuid4(), uuid4()
    place = Directories(checkpoints).below(str(query)).below(str(checkpoint))
    name = place.task("segments/0/0").save(pl.DataFrame({"n": [1]}))
    with connect(dsn, "test") as connection, connection.cursor() as cursor:
        layout = Jsonb({"segments": "segments"}) if has_layout else None
        cursor.execute(
            "INSERT INTO log.commit (query_id, checkpoint_id, epoch, layout) VALUES (%s, %s, 1, %s)", (query, checkpoint, layout)
        )
        write_states(cursor, query, {(0, 0): TaskState.of({"operators": {"w": [{"segment": name}]}})})
    return Path(str(query), str(checkpoint), "segments", "0", "0", f"{name}.arrow")


def test_of_the_state_what_the_database_names_is_copied(dsn: str, empty: str, checkpoints: Path, tmp_path: Path) -> None:
    named, taken_over_halfway = segment(dsn, checkpoints), segment(dsn, checkpoints, has_layout=False)
    kept = named.with_name("000000000000-0badbeef-00000000.arrow")
    former = Path(named.parts[0], str(uuid4()), *named.parts[2:])
    for path in (kept, former):
        (checkpoints / path).parent.mkdir(parents=True, exist_ok=True)
        (checkpoints / path).write_bytes(b"kept for a database of another moment")
    back_up(dsn, checkpoints, Directories(checkpoints), tmp_path / "backup", TIMEOUT_S)
    put_back(empty, tmp_path / "there", Directories(tmp_path / "there"), tmp_path / "backup")
    found = {path.relative_to(tmp_path / "there") for path in (tmp_path / "there").rglob("*.arrow")}
    assert found == {named, taken_over_halfway}


def test_a_backup_that_lacks_state_which_its_database_names_is_refused(
    dsn: str, empty: str, checkpoints: Path, tmp_path: Path
) -> None:
    named = segment(dsn, checkpoints)
    back_up(dsn, checkpoints, Directories(checkpoints), tmp_path / "backup", TIMEOUT_S)
    (tmp_path / "backup" / "checkpoints" / named).unlink()
    with pytest.raises(BackupFailed, match=f"of 1 segments .* 1 are not in .*, such as {named}"):
        put_back(empty, tmp_path / "there", Directories(tmp_path / "there"), tmp_path / "backup")


@pytest.mark.parametrize("is_copied", [False, True], ids=["where it is", "copied for a service beside the original"])
def test_of_state_in_an_object_store_it_is_checked_that_it_is_there(
    dsn: str, empty: str, checkpoints: Path, tmp_path: Path, *, is_copied: bool
) -> None:
    named = segment(dsn, checkpoints)
    there = Objects(f"memory:///{uuid4()}", SegmentCache(tmp_path / "cache", 1 << 20))
    with pytest.raises(BackupFailed, match=f"of 1 segments .* 1 are not in memory://.*, such as {named}"):
        back_up(dsn, checkpoints, there, tmp_path / "lacking", TIMEOUT_S)
    there.put(str(named), (checkpoints / named).read_bytes())
    shutil.rmtree(checkpoints / named.parts[0])
    made = back_up(dsn, checkpoints, there, tmp_path / "backup", TIMEOUT_S)
    with pytest.raises(BackupFailed, match=f"put it back with SLACKWATER_STATE_URL={there.url}"):
        put_back(empty, tmp_path / "there", Directories(tmp_path / "there"), tmp_path / "backup")
    target = there
    if is_copied:
        target = Objects(f"memory:///{uuid4()}", there.cached)
        target.put(str(named), there.get(str(named)))
    assert put_back(empty, tmp_path / "there", target, tmp_path / "backup") == made


def test_a_query_that_does_not_come_to_rest_is_named_and_runs_on(
    dsn: str, control: Control, checkpoints: Path, tmp_path: Path
) -> None:
    query = control.add()
    control.execute(
        "UPDATE slackwater.query_status SET state = 'running', lease_owner = gen_random_uuid(), "
        "lease_expires_at = now() + interval '1 minute' WHERE query_id = %s",
        query,
    )
    (name,) = desired_states(dsn)
    with pytest.raises(BackupFailed, match=f"did not come to rest: {name}"):
        back_up(dsn, checkpoints, Directories(checkpoints), tmp_path / "backup", 0.2)
    assert desired_states(dsn) == {name: "running"}


def whole(_backup: Path, _there: Path) -> None:
    """Nothing is wrong with the backup: it is the database that is not empty."""


def without_contents(backup: Path, _there: Path) -> None:
    (backup / "backup.json").unlink()


def of_a_newer_version(backup: Path, _there: Path) -> None:
    (backup / "backup.json").write_text('{"format": 3}')


def cut(backup: Path, _there: Path) -> None:
    dump = backup / "database.dump"
    dump.write_bytes(dump.read_bytes()[: dump.stat().st_size // 2])


def beside_other_state(_backup: Path, there: Path) -> None:
    there.mkdir()
    (there / "root.json").write_text("{}")


@pytest.mark.parametrize(
    ("damage", "is_empty", "message"),
    [
        (whole, False, "holds a Slackwater already"),
        (without_contents, True, "no whole backup"),
        (of_a_newer_version, True, "newer version"),
        (cut, True, "pg_restore failed"),
        (beside_other_state, True, "is not empty"),
    ],
)
def test_what_cannot_be_put_back_is_refused_and_leaves_nothing(
    dsn: str, empty: str, checkpoints: Path, tmp_path: Path, damage: Callable[[Path, Path], None], is_empty: bool, message: str
) -> None:
    back_up(dsn, checkpoints, Directories(checkpoints), tmp_path / "backup", TIMEOUT_S)
    damage(tmp_path / "backup", tmp_path / "there")
    with pytest.raises(BackupFailed, match=message):
        put_back(empty if is_empty else dsn, tmp_path / "there", Directories(tmp_path / "there"), tmp_path / "backup")
    with connect(empty, "test") as connection:
        assert connection.execute("SELECT to_regclass('slackwater.query')").fetchone() == (None,)


def test_a_backup_overwrites_nothing(dsn: str, checkpoints: Path, tmp_path: Path) -> None:
    (tmp_path / "backup").mkdir()
    with pytest.raises(BackupFailed, match="exists already"):
        back_up(dsn, checkpoints, Directories(checkpoints), tmp_path / "backup", TIMEOUT_S)


def test_a_directory_that_exists_is_refused_before_a_database_is_started_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACKWATER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("SLACKWATER_DATABASE_URL", raising=False)
    refused = CliRunner().invoke(cli, ["backup", str(tmp_path)])
    assert (refused.exit_code, "exists already" in refused.stderr) == (1, True)
    assert not (tmp_path / "data").exists()


def test_queries_that_keep_the_rows_of_a_table_are_not_counted_as_somebodys() -> None:
    made = Contents("0.1.0", 0.0, ("orders", f"{PREFIX}weather"))
    assert made.user_queries == ("orders",)

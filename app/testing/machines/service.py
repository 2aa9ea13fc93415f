"""A whole service of one's own for a while: ``slackwater serve`` in a temporary directory, spoken to over HTTP alone."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

import httpx
import psutil

from engine.processes.python_processes import import_environment, python_command

READY_S: Final = 90.0
"""An embedded Postgres makes its cluster on the first start: seconds, on a busy machine tens of them."""

STOP_S: Final = 60.0
_POLL_S: Final = 0.1
_CLASSES: Final = "SLACKWATER_SPARK__CLASS_ARCHIVE_DIR"
_LOG_CHARS: Final = 6_000
"""Of each log, its end: what went wrong is there."""


class ServiceNotStarted(Exception):
    """The service did not become ready. The message ends with what its logs say."""


class Service:
    """``slackwater serve`` on an embedded Postgres.

    Args:
        directory: where its data and logs go; its path must be short, for a Unix socket's has 107 bytes at most.
        settings: environment variables with which it is started besides.

    Attributes:
        arguments: what follows ``serve`` on its command line.
    """

    arguments: tuple[str, ...] = ()

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self._settings = dict(settings or {})
        self.data_dir = directory / "data"
        self.port = free_port()
        self._log_path = directory / "serve.log"
        self._log = self._log_path.open("ab")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it is ready.

        Raises:
            ServiceNotStarted: it ended, or was not ready within ``READY_S``.
        """
        command = python_command("app.cli", "serve", *self.arguments)
        self._process = subprocess.Popen(
            command, env=self.environment(), stdout=self._log, stderr=self._log, start_new_session=True
        )
        deadline = time.monotonic() + READY_S
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ServiceNotStarted(f"the service did not become ready within {READY_S:.0f} s\n{self.logs()}")
            time.sleep(_POLL_S)

    def environment(self) -> dict[str, str]:
        given = import_environment()
        inherited = {name: value for name, value in given.items() if not name.startswith("SLACKWATER_") or name == _CLASSES}
        return inherited | {
            "SLACKWATER_DATA_DIR": str(self.data_dir),
            "SLACKWATER_PORT": str(self.port),
            "SLACKWATER_DRIVER__STOP_TIMEOUT_MS": "15000",
            "SLACKWATER_SPARK__CLASS_ARCHIVE": "false",  # for later starts, which a temporary directory seldom sees
            "SLACKWATER_DRIVER__SPARE": "false",
            **self._settings,
        }

    def logs(self) -> str:
        """Return the ends of the service's and its driver's logs."""
        parts = []
        for path in (self._log_path, self.data_dir / "driver.log"):
            with suppress(OSError):
                parts.append(f"--- {path.name}\n{path.read_text(errors='replace')[-_LOG_CHARS:]}")
        return "\n".join(parts)

    def end(self) -> None:
        """Stop in order what runs, and by force what is left."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S)
            kill([*self._children(), *self._database()])
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _is_ready(self) -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(f"{self.url}/readyz").status_code == httpx.codes.OK
        return False

    def _children(self) -> list[psutil.Process]:
        """Every process that was started for this data directory, with any parent, without the API process itself."""
        found = {process.pid: process for process in psutil.process_iter() if str(self.data_dir) in _data_dir_of(process)}
        return [process for process in found.values() if self._process is None or process.pid != self._process.pid]

    def _database(self) -> list[psutil.Process]:
        servers = [process for process in psutil.process_iter() if f"-D {self.data_dir / 'postgres'}" in command_of(process)]
        return [*servers, *(child for server in servers for child in server.children(recursive=True))]


Kind = TypeVar("Kind", bound=Service)


@contextmanager
def service_of(kind: type[Kind], settings: Mapping[str, str] | None = None) -> Iterator[Kind]:
    """Run a kind of service for the length of a block, in a temporary directory."""
    directory = Path(tempfile.mkdtemp(prefix="slackwater-"))
    running = kind(directory, settings)
    try:
        running.start()
        yield running
    finally:
        running.end()
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def service() -> Iterator[Service]:
    """Run a service for the length of a block. Raises ServiceNotStarted."""
    with service_of(Service) as running:
        yield running


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def kill(processes: list[psutil.Process]) -> None:
    """Kill what is still there of these."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def command_of(process: psutil.Process) -> str:
    """Return a process's command line; empty where it cannot be known."""
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return ""


def _data_dir_of(process: psutil.Process) -> str:
    try:
        return process.environ().get("SLACKWATER_DATA_DIR", "")
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return ""

"""The whole service as a user starts it, and ways to kill parts of it. Speaks to it over HTTP alone."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import httpx
import psutil

from app.client import Client, ServiceError

READY_S = 60.0
T = TypeVar("T")


def until(what: str, condition: Callable[[], T], seconds: float) -> T:
    """Return the first truthy answer of a condition; a service that is down or starting answers nothing."""
    deadline = time.monotonic() + seconds
    while True:
        with suppress(httpx.TransportError, ServiceError):
            if answer := condition():
                return answer
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Service:
    """``slackwater serve`` on an embedded Postgres in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.data_dir = directory / "data"
        self.port = free_port()
        self._log = (directory / "serve.log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SLACKWATER_")}
        environment |= {
            "SLACKWATER_DATA_DIR": str(self.data_dir),
            "SLACKWATER_PORT": str(self.port),
            "SLACKWATER_DRIVER__STOP_TIMEOUT_MS": "15000",
        }
        command = [sys.executable, "-m", "app.cli", "serve"]
        self._process = subprocess.Popen(command, env=environment, stdout=self._log, stderr=self._log, start_new_session=True)
        until("the service is ready", lambda: httpx.get(f"{self.url}/readyz").status_code == 200, READY_S)

    def kill_driver(self) -> None:
        """Kill the driver's Python process alone; its JVM and workers are left to whoever looks after them."""
        _kill([process for process in self._children() if "app.driver" in _command(process)])

    def kill_api(self) -> None:
        """Kill the API process; the database and the driver stay behind as orphans. Then start it again."""
        assert self._process is not None
        _kill([psutil.Process(self._process.pid)])
        self._process.wait()
        self.start()

    def kill_everything(self) -> None:
        """As a power cut does: no process is left that could say goodbye. Then start it again."""
        assert self._process is not None
        _kill([psutil.Process(self._process.pid), *self._children(), *self._database()])
        self._process.wait()
        self.start()

    def end(self) -> None:
        """Stop in order what runs, and by force what is left."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(60)
            _kill([*self._children(), *self._database()])
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _children(self) -> list[psutil.Process]:
        """Everything that was started for this data directory, whoever its parent is now, without the API process itself."""
        found = {process.pid: process for process in psutil.process_iter() if str(self.data_dir) in _environment(process)}
        return [process for process in found.values() if self._process is None or process.pid != self._process.pid]

    def _database(self) -> list[psutil.Process]:
        servers = [process for process in psutil.process_iter() if f"-D {self.data_dir / 'postgres'}" in _command(process)]
        return [*servers, *(child for server in servers for child in server.children(recursive=True))]


@contextmanager
def service() -> Iterator[Service]:
    """Run a service for the length of a block, in a directory whose path is short enough for a Unix socket."""
    directory = Path(tempfile.mkdtemp(prefix="slackwater-"))
    running = Service(directory)
    try:
        running.start()
        yield running
    except BaseException:
        for name in ("serve.log", "data/driver.log"):
            with suppress(OSError):
                print(f"--- {name}\n", (directory / name).read_text(errors="replace")[-6_000:])
        raise
    finally:
        running.end()
        shutil.rmtree(directory, ignore_errors=True)


class Feeder(threading.Thread):
    """Sends bodies in order, each until it is acknowledged: a client that survives the service."""

    def __init__(self, url: str, stream: str, bodies: list[bytes], pause_s: float) -> None:
        super().__init__(name="feeder", daemon=True)
        self._url, self._stream, self._bodies, self._pause_s = url, stream, bodies, pause_s
        self.acknowledged = 0
        self.repeated = 0

    def run(self) -> None:
        with Client(self._url, timeout=20) as client:
            for number, body in enumerate(self._bodies):
                while not self._sent(client, number, body):
                    self.repeated += 1
                    time.sleep(0.2)
                self.acknowledged = number + 1
                time.sleep(self._pause_s)

    def _sent(self, client: Client, number: int, body: bytes) -> bool:
        try:
            client.append("streams", self._stream, body, idempotency_key=f"body-{number}")
        except httpx.TransportError:
            return False
        except ServiceError as error:
            if error.status < 500:
                raise
            return False
        return True


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return ""


def _environment(process: psutil.Process) -> str:
    try:
        return process.environ().get("SLACKWATER_DATA_DIR", "")
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return ""

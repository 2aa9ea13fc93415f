"""The whole service as a user starts it, and ways to kill parts of it. Speaks to it over HTTP alone."""

from __future__ import annotations

import os
import random
import secrets
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TypeVar

import psutil
from slackwater import Client, ServiceError, Unreachable

import app.testing.machines.service
from app.driver.supervisor.process_group import end_session, session_members
from app.testing.machines.service import STOP_S, command_of, kill

T = TypeVar("T")

WORKER = "py-worker"
"""What the fork server calls Spark's Python workers and the daemon that forks them."""

DELIVERING = "app.driver.delivering"
BACKEND = "[local]"
"""In the title of a Postgres process that serves a connection over the socket."""

Body = tuple[str, str, bytes]
"""``streams`` or ``tables``, the relation, records."""


def until(what: str, condition: Callable[[], T], seconds: float) -> T:
    """Return the first truthy answer of a condition; a service that is down or starting answers nothing."""
    deadline = time.monotonic() + seconds
    while True:
        with suppress(Unreachable, ServiceError):
            if answer := condition():
                return answer
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.1)


def seeded() -> int:
    """Return ``FAULTS_SEED``, or a new seed; it is printed, so that the run can be had again."""
    seed = int(os.environ.get("FAULTS_SEED") or secrets.randbits(32))
    print(f"FAULTS_SEED={seed}")
    return seed


class Service(app.testing.machines.service.Service):
    """A service, parts of which can be killed."""

    def kill_driver(self) -> None:
        """Kill the driver's Python process alone; its JVM and workers are left to whoever looks after them."""
        kill([each for each in self._children() if "app.driver" in command_of(each) and DELIVERING not in command_of(each)])

    def kill_delivering(self) -> None:
        """Kill the process that delivers results; the driver starts another one."""
        kill([each for each in self._children() if DELIVERING in command_of(each)])

    def kill_jvm(self) -> None:
        """Kill the driver's JVM; its Python process notices."""
        kill([process for process in self._children() if "org.apache.spark.deploy" in command_of(process)])

    def kill_workers(self) -> None:
        """Kill the Python workers, not the daemons that fork them; Spark fails the batches they are in."""
        kill_workers_among(self._children())

    def kill_postgres(self) -> None:
        """Kill the embedded database, all of its processes at once; whoever keeps it brings it back."""
        kill(self._database())

    def kill_backend(self) -> None:
        """Kill one process that serves a connection of the database, as want of memory does: it cuts off everybody and recovers."""
        backends = [each for each in self._database() if BACKEND in command_of(each)]
        kill(random.sample(backends, min(1, len(backends))))

    def kill_api(self) -> None:
        """Kill the API process; the database and the driver stay behind as orphans. Then start it again."""
        assert self._process is not None
        kill([psutil.Process(self._process.pid)])
        self._process.wait()
        self.start()

    def kill_everything(self) -> None:
        """As a power cut does: no process is left that could say goodbye. Then start it again."""
        assert self._process is not None
        kill([psutil.Process(self._process.pid), *self._children(), *self._database()])
        self._process.wait()
        self.start()

    def stop(self) -> None:
        """Stop it in order, to be started again."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        assert self._process.wait(STOP_S) == 0
        self._process = None

    def start_anew(self, settings: Mapping[str, str]) -> None:
        """Stop it in order, and start it with other settings."""
        self.stop()
        self._settings |= settings
        self.start()

    def driver(self) -> psutil.Process:
        """Return the driver that the service supervises."""
        (found,) = (each for each in self._children() if "app.driver" in command_of(each) and each.parent() == self._own())
        return found

    def _own(self) -> psutil.Process:
        assert self._process is not None
        return psutil.Process(self._process.pid)


class Driverless(Service):
    """A service whose drivers somebody else starts."""

    arguments = ("--no-driver",)


class SecondDriver:
    """``python -m app.driver`` beside a service, told what the service's own driver is told."""

    def __init__(self, running: Service) -> None:
        self.id = uuid.uuid4()
        self._log = running.data_dir / f"driver-{self.id}.log"
        environment = running.driver().environ()
        self.dsn = environment["SLACKWATER_DATABASE_URL"]
        with self._log.open("wb") as output:
            command = [sys.executable, "-m", "app.driver", "--driver-id", str(self.id)]
            self._process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """Kill its whole session: the process, its JVM, its workers."""
        assert end_session(self._process.pid, 15)
        self._process.wait()

    def freeze(self, is_moment: Callable[[], bool], seconds: float) -> bool:
        """Stop the whole session at such a moment if there is one, else at any; returns whether it was one."""
        deadline = time.monotonic() + seconds
        while True:
            self._process.send_signal(signal.SIGSTOP)
            if (is_met := is_moment()) or time.monotonic() > deadline:
                break
            self._process.send_signal(signal.SIGCONT)
            time.sleep(0.01)
        while running := [each for each in session_members(self._process.pid) if not _is_frozen(each)]:
            for pid in running:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
        return is_met

    def wake(self) -> None:
        for pid in session_members(self._process.pid):
            os.kill(pid, signal.SIGCONT)


def kill_workers_among(processes: Iterable[psutil.Process]) -> None:
    """Kill the Python workers of Spark, not the daemons that fork them."""
    daemons = {each.pid: each for each in processes if _is_worker(each)}
    kill([each for each in daemons.values() if _parent_of(each) in daemons])


def _parent_of(process: psutil.Process) -> int:
    try:
        return process.ppid()
    except psutil.NoSuchProcess:
        return 0


def _is_worker(process: psutil.Process) -> bool:
    try:
        return process.name() == WORKER
    except psutil.NoSuchProcess:
        return False


def _is_frozen(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@contextmanager
def second_driver(running: Service) -> Iterator[SecondDriver]:
    """Run a driver beside a service's own for the length of a block, from when it is ready."""
    driver = SecondDriver(running)
    try:
        until("the second driver is ready", lambda: "driver_ready" in driver.log(), 90)
        yield driver
    except BaseException:
        print(f"--- second driver\n{driver.log()[-6_000:]}")
        raise
    finally:
        driver.kill()


Kind = TypeVar("Kind", bound=Service)


@contextmanager
def service(settings: Mapping[str, str] | None = None) -> Iterator[Service]:
    """Run a service for the length of a block; when the block fails, show what its logs say."""
    with service_of(Service, settings) as running:
        yield running


@contextmanager
def service_of(kind: type[Kind], settings: Mapping[str, str] | None = None) -> Iterator[Kind]:
    """Run a kind of service for the length of a block; when the block fails, show what its logs say."""
    with app.testing.machines.service.service_of(kind, settings) as running:
        try:
            yield running
        except BaseException:
            print(running.logs())
            raise


class Feeder(threading.Thread):
    """Sends bodies in order, each until it is acknowledged: a client that survives the service.

    Attributes:
        acknowledged: how many bodies.
        repeated: how many attempts had no answer, or none that counts.
        ends: relation and partition → offset behind the last record that was acknowledged.
        is_done: everything was acknowledged.
    """

    def __init__(self, url: str, bodies: Iterable[Body], pause_s: float) -> None:
        super().__init__(name="feeder", daemon=True)
        self._url, self._bodies, self._pause_s = url, bodies, pause_s
        self.acknowledged = 0
        self.repeated = 0
        self.ends: dict[tuple[str, int], int] = {}
        self.is_done = False

    def run(self) -> None:
        with Client(self._url, timeout=20) as client:
            for number, body in enumerate(self._bodies):
                while not self._sent(client, number, body):
                    self.repeated += 1
                    time.sleep(0.2)
                self.acknowledged = number + 1
                time.sleep(self._pause_s)
        self.is_done = True

    def _sent(self, client: Client, number: int, body: Body) -> bool:
        try:
            kind, name, records = body
            appended = client.relation(kind, name).append(records, idempotency_key=f"body-{number}", attempts=1)
        except Unreachable:
            return False
        except ServiceError as error:
            if error.status < 500:
                raise
            return False
        for part in appended.offsets:
            self.ends[body[1], part["partition"]] = part["last_offset"] + 1
        return True

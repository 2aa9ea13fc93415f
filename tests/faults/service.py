"""The whole service as a user starts it, and ways to kill parts of it. Speaks to it over HTTP alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import httpx
import psutil

import app.testing.service
from app.client import Client, ServiceError
from app.testing.service import command_of, kill

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


class Service(app.testing.service.Service):
    """A service, parts of which can be killed."""

    def kill_driver(self) -> None:
        """Kill the driver's Python process alone; its JVM and workers are left to whoever looks after them."""
        kill([process for process in self._children() if "app.driver" in command_of(process)])

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


@contextmanager
def service() -> Iterator[Service]:
    """Run a service for the length of a block; when the block fails, show what its logs say."""
    with app.testing.service.service_of(Service) as running:
        try:
            yield running
        except BaseException:
            print(running.logs())
            raise


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

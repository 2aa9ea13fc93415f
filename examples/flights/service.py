"""Run the service the demo talks to, as a person would: `slackwater serve` in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from engine.processes.python_processes import import_environment, python_command

START_SECONDS = 180.0  # a cold machine compiles Python and starts a JVM meanwhile
STOP_SECONDS = 60.0
POLL_SECONDS = 0.3


class ServiceDidNotStart(Exception):
    """The service ended or stayed silent; the message holds the end of its log."""


@contextmanager
def running_service(base_url: str, environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes] | None]:
    """Yield a running service; None where one answers at ``base_url`` already, which is then left alone.

    Raises:
        ServiceDidNotStart: see the class.
    """
    if _is_ready(base_url):
        yield None
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            python_command("app.cli", "serve"),
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**import_environment(), **environment},
            start_new_session=True,  # Ctrl-C reaches the demo, which then stops the service in order
        )
    try:
        _wait_ready(base_url, process, log)
        yield process
    finally:
        _stop(process)


def _is_ready(base_url: str) -> bool:
    try:
        return httpx.get(f"{base_url}/readyz", timeout=2).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _wait_ready(base_url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not _is_ready(base_url):
        if process.poll() is not None or time.monotonic() > deadline:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-25:])
            raise ServiceDidNotStart(f"the service did not start; the end of {log}:\n{tail}\nTry: slackwater doctor")
        time.sleep(POLL_SECONDS)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

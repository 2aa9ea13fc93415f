"""One fresh service per job: its own Postgres, data directory and port, gone afterwards."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import httpx
import psutil
from slackwater import Client

from app.db.embedded_postgres import EmbeddedPostgres
from examples.flights.service import running_service

START_S = 180.0
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Service:
    """A running service.

    Attributes:
        client: speaks to it.
        dsn: its database; results of millions of rows are judged there rather than page by page.
        port: where it answers.
        data_dir: with its driver's log.
        pid: the serving process; the driver and its workers are below it.
        postgres_pid: the server process of its database.
    """

    client: Client
    dsn: str
    port: int
    pid: int
    data_dir: Path
    postgres_pid: int


@contextmanager
def fresh_service(work: Path, max_queries: int | None = None, more: Mapping[str, str] | None = None) -> Iterator[Service]:
    """Start a service on an empty data directory below ``work`` and remove the directory afterwards.

    Args:
        work: where.
        max_queries: of its driver; None: as by default.
        more: variables of its environment.
    """
    data_dir = work / f"run-{uuid4().hex[:8]}"
    postgres = EmbeddedPostgres(data_dir / "postgres")
    port = free_port()
    environment = {
        "SLACKWATER_DATA_DIR": str(data_dir),
        "SLACKWATER_PORT": str(port),
        "SLACKWATER_DATABASE_URL": postgres.start(),
        "SLACKWATER_FILES_ROOT": str(work),
        "SLACKWATER_SPARK__DRIVER_MEMORY": "4g",
        "SLACKWATER_SPARK__CLASS_ARCHIVE": "false",  # made a minute after the start, in the middle of what is measured
        "SLACKWATER_DRIVER__SPARE": "false",  # the same
        **(more or {}),
    }
    if max_queries is not None:
        environment["SLACKWATER_DRIVER__MAX_QUERIES"] = str(max_queries)
    url = f"http://127.0.0.1:{port}"
    try:
        with running_service(url, environment, data_dir / "serve.log") as process, Client(url) as client:
            if process is None:
                raise RuntimeError(f"something answers on the free port {port}")
            server = int(next((data_dir / "postgres").rglob("postmaster.pid")).read_text().split()[0])
            yield Service(client, environment["SLACKWATER_DATABASE_URL"], port, process.pid, data_dir, server)
    finally:
        postgres.stop()
        shutil.rmtree(data_dir, ignore_errors=True)


@contextmanager
def api_alone(folder: Path) -> Iterator[tuple[int, str, psutil.Process]]:
    """Start an API process without a driver and yield its port, its database and the process."""
    postgres = EmbeddedPostgres(folder / "postgres")
    port, dsn = free_port(), postgres.start()
    settings = {"SLACKWATER_DATABASE_URL": dsn, "SLACKWATER_DATA_DIR": str(folder), "SLACKWATER_PORT": str(port)}
    try:
        with (folder / "serve.log").open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "app.cli", "serve", "--no-driver"],
                env={**os.environ, **settings},
                stdout=output,
                stderr=output,
            )
        try:
            _await_answers(f"http://127.0.0.1:{port}/healthz")
            yield port, dsn, psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(30)
    finally:
        postgres.stop()


def _await_answers(url: str) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            httpx.get(url).raise_for_status()
        except httpx.HTTPError:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)
        else:
            return


def await_driver(service: Service) -> None:
    """Wait for a driver that has gone through its warm-up: what is measured is queries, not its start."""
    await_logged(service, "spark_warmed_up")


def await_logged(service: Service, event: str) -> None:
    """Wait until the driver has logged something."""
    deadline = time.monotonic() + START_S
    log = service.data_dir / "driver.log"
    while not log.exists() or event not in log.read_text(errors="replace"):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {event} within {START_S:.0f} s")
        time.sleep(POLL_S)


def free_port() -> int:
    """Return a port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

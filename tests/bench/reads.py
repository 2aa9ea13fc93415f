"""What reads by key cost: `python -m tests.bench reads [--rounds 3] [--ingest] [--json FILE]`.

Alone: one API process without a driver, 16 kept connections, one key of a table of 10,000 rows that the real sink wrote; beside it, in
turns, a bare FastAPI handler with one prepared SELECT of the same row (see `bare`). Then five times the connections, none of which waits
after a 429, and 16 again. With `--ingest` instead the whole service, Spark included, see `reads_ingesting`. The machine's other load
counts, so each figure is the median of the rounds and the ratio that of figures of one round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
from rich.console import Console
from rich.table import Table
from slackwater import Client

from app.db.embedded_postgres import EmbeddedPostgres
from app.testing.machines.service import free_port
from tests.api.change_writer import ChangeWriter
from tests.bench.load import Answered, Load, put
from tests.bench.reads_ingesting import while_ingesting

CONNECTIONS = 16
OVERLOAD = 5
POOL_SIZE = 8
ROWS = 10_000
START_SECONDS = 60.0
ITEMS: dict[str, Any] = {
    "key": ["item"],
    "columns": {"item": "string", "price": "double", "sold_at": "timestamp"},
    "event_time": "sold_at",
    "connector": {"type": "log", "partitions": 2},
}
TOTALS: dict[str, Any] = {
    "name": "totals",
    "from": {"stream": "items"},
    "group_by": ["item"],
    "aggregate": {"sold": "count(*)", "income": "sum(price)"},
    "into": {"table": "totals"},
}


@dataclass(frozen=True, slots=True)
class Measured:
    """A load and what it cost.

    Attributes:
        cpu_us: of the serving process per answer, whatever its status; what the machine's other load changes least.
    """

    answered: Answered
    cpu_us: float


@dataclass(frozen=True, slots=True)
class Round:
    """Figures taken one after the other.

    Attributes:
        overload: with ``OVERLOAD`` times the connections.
        after: with the usual number again.
    """

    bare: Measured
    service: Measured
    overload: Measured
    after: Measured

    @property
    def ratio(self) -> float:
        """Return the service's speed by the bare handler's."""
        return self.service.answered.per_second / self.bare.answered.per_second


def main(arguments: Sequence[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench reads")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--ingest", action="store_true", help="while a query on Spark takes records in, instead of alone")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args(arguments)
    console = Console(width=120)
    with tempfile.TemporaryDirectory(prefix="slackwater-reads-") as folder:
        if options.ingest:
            found = while_ingesting(console, Path(folder), options.rounds, options.seconds)
            figures = {"ingesting": [asdict(one) for one in found]}
        else:
            rounds = list(alone(Path(folder), options.rounds, options.seconds))
            show(console, rounds)
            figures = {"alone": [{**asdict(one), "ratio": one.ratio} for one in rounds]}
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1))
    return 0


def alone(folder: Path, rounds: int, seconds: float) -> Iterator[Round]:
    """Measure the service without a driver and the bare handler in turns."""
    postgres = EmbeddedPostgres(folder / "postgres")
    dsn = postgres.start()
    try:
        with ExitStack() as stack:
            service = stack.enter_context(_serving(folder, dsn))
            fill(dsn, service.port)
            bare = stack.enter_context(_started(folder, "bare", free_port(), dsn))
            rows, bare_rows = paths("/v1/tables/totals/rows/"), paths("/rows/")
            for _ in range(rounds):
                yield Round(
                    measured(bare, Load(bare.port, bare_rows, CONNECTIONS, seconds)),
                    measured(service, Load(service.port, rows, CONNECTIONS, seconds)),
                    measured(service, Load(service.port, rows, CONNECTIONS * OVERLOAD, seconds)),
                    measured(service, Load(service.port, rows, CONNECTIONS, seconds)),
                )
    finally:
        postgres.stop()


@dataclass(frozen=True, slots=True)
class Server:
    """A process that answers on a port."""

    port: int
    pid: int


def measured(server: Server, load: Load) -> Measured:
    """Put a load on a server."""
    process = psutil.Process(server.pid)
    before = process.cpu_times()
    answered = put(load)
    after = process.cpu_times()
    spent = after.user + after.system - before.user - before.system
    return Measured(answered, spent / answered.all_answers * 1e6)


def fill(dsn: str, port: int) -> None:
    """Make the table and let the sink write its rows."""
    with Client(f"http://127.0.0.1:{port}") as client:
        client.stream("items").register(ITEMS)
        client.queries.put(TOTALS)
    with ChangeWriter(dsn, "totals") as writer:
        writer.commit([("upsert", {"item": key, "sold": 1, "income": 0.5}, 1_000) for key in _keys()])


def paths(prefix: str) -> tuple[str, ...]:
    """Return what is asked for."""
    return tuple(prefix + key for key in _keys())


def _keys() -> list[str]:
    return [f"item-{number:05d}" for number in range(ROWS)]


def show(console: Console, rounds: Sequence[Round]) -> None:
    """Print the medians."""
    table = Table(title=f"Reads by key, one API process, medians of {len(rounds)} rounds")
    for name in ("load", "answers/s", "p50 ms", "p99 ms", "429", "p99 ms of 429", "longest gap ms", "CPU µs", "other statuses"):
        table.add_column(name, justify="left" if name in ("load", "other statuses") else "right")
    named = {
        f"bare FastAPI, {CONNECTIONS} connections": [one.bare for one in rounds],
        f"service, {CONNECTIONS} connections": [one.service for one in rounds],
        f"service, {CONNECTIONS * OVERLOAD} connections": [one.overload for one in rounds],
        f"service, {CONNECTIONS} connections after it": [one.after for one in rounds],
    }
    for name, found in named.items():
        table.add_row(name, *cells(found))
    console.print(table)
    ratios = [one.ratio for one in rounds]
    listed = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    console.print(f"service / bare: {statistics.median(ratios):.2f} (rounds: {listed})", highlight=False)


def cells(several: Sequence[Measured]) -> tuple[str, ...]:
    """Return medians as cells of a table."""
    found = [one.answered for one in several]
    others = sorted({status for one in found for status in one.statuses} - {"200", "429"})
    return (
        f"{statistics.median(one.per_second for one in found):,.0f}",
        f"{statistics.median(one.p50_ms for one in found):.1f}",
        f"{statistics.median(one.p99_ms for one in found):.1f}",
        f"{statistics.median(one.refused_share for one in found):.0%}",
        f"{statistics.median(one.refused_p99_ms for one in found):.1f}",
        f"{max(one.longest_gap_ms for one in found):.0f}",
        f"{statistics.median(one.cpu_us for one in several):.0f}",
        ", ".join(others) or "none",
    )


@contextmanager
def _serving(folder: Path, dsn: str) -> Iterator[Server]:
    """Run the service without a driver, on default settings."""
    port = free_port()
    environment = {
        "SLACKWATER_DATA_DIR": str(folder / "data"),
        "SLACKWATER_PORT": str(port),
        "SLACKWATER_POOL_SIZE": str(POOL_SIZE),
        "SLACKWATER_DATABASE_URL": dsn,
    }
    with _started(folder, "service", port, dsn, environment) as server:
        yield server


@contextmanager
def _started(folder: Path, name: str, port: int, dsn: str, environment: dict[str, str] | None = None) -> Iterator[Server]:
    module = ["app.cli", "serve", "--no-driver"]
    if name == "bare":
        module = ["tests.bench.bare", str(port), dsn, str(POOL_SIZE), "totals", "item"]
    log_path = folder / f"{name}.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *module], stdout=log, stderr=log, env={**os.environ, **(environment or {})}
        )
        try:
            _wait_until_it_answers(port, process, log_path)
            yield Server(port, process.pid)
        finally:
            process.terminate()
            process.wait(30)


def _wait_until_it_answers(port: int, process: subprocess.Popen[bytes], log_path: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            httpx.get(f"http://127.0.0.1:{port}/openapi.json", timeout=10)
        except httpx.TransportError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"it did not start:\n{log_path.read_text()[-2_000:]}")

"""`python -m tests.bench deliveries [--size …] [--only TARGET …]`: how fast a result that is there already is delivered.

A query has written every bid of the NX-T input into its stream. Then its definition names one target after another, and each takes the whole
log from its beginning: a topic of a real broker beside the service (exactly once, or at least once), a directory of files, a Delta table. The
query itself has nothing to do meanwhile. Seconds count from the edit to the last row's delivery.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from tests.bench.jobs import BID, register
from tests.bench.meter import TreeMeter
from tests.bench.service import Service, await_driver, fresh_service
from tests.bench.sources import LogSource
from tests.kafka.broker import Broker, running, why_not

CONNECTION: Final = "there"
RESULT: Final = "out"
PATIENCE_S: Final = 600.0
POLL_S: Final = 0.5
"""A status costs the API 5 ms; when the last row was delivered the status says itself."""

HEAP: Final = "1g"

_TOPIC: Final = {"type": "kafka", "connection": CONNECTION, "create": {"partitions": 4, "replication": 1}}
TARGETS: Final[Mapping[str, dict[str, Any]]] = {
    "kafka": {**_TOPIC, "topic": "once"},
    "kafka-at-least-once": {**_TOPIC, "topic": "repeated", "guarantee": "at_least_once"},
    "files-parquet": {"type": "files", "path": "parquet", "format": "parquet", "every": "0s"},
    "files-ndjson": {"type": "files", "path": "ndjson", "format": "ndjson", "every": "0s"},
    "delta": {"type": "delta", "path": "delta", "every": "0s"},
}


@dataclass(frozen=True, slots=True)
class Delivered:
    """One target that has everything.

    Attributes:
        cpu: seconds by role.
    """

    target: str
    rows: int
    seconds: float
    cpu: Mapping[str, float]


def main(arguments: Sequence[str]) -> int:
    """Measure and print; never judges a time."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench deliveries")
    parser.add_argument("--size", choices=["tiny", "small", "large"], default="small")
    parser.add_argument("--only", nargs="+", choices=list(TARGETS), help="only these targets")
    parser.add_argument("--work", type=Path, default=Path(".slackwater") / "bench", help="folder for states and results")
    options = parser.parse_args(arguments)
    console = Console(width=150)
    chosen = options.only or list(TARGETS)
    has_topics = any(TARGETS[name]["type"] == "kafka" for name in chosen)
    if has_topics and (reason := why_not()) is not None:
        console.print(f"[red]{reason}[/]")
        return 1
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    with running(heap=HEAP) if has_topics else nullcontext() as broker:
        console.print(_table(options.size, _measure(options.size, work, chosen, broker)))
    return 0


def _measure(size: str, work: Path, chosen: Sequence[str], broker: Broker | None) -> list[Delivered]:
    root = work / f"delivered-{time.time_ns()}"
    root.mkdir()
    with fresh_service(work, more={"SLACKWATER_DELIVERY_ROOT": str(root)}) as service:
        if broker is not None:
            connection = {"type": "kafka", "bootstrap": broker.bootstrap}
            service.client.call("PUT", f"/v1/connections/{CONNECTION}", connection)
        rows = _made(service, LogSource(size))
        return [_delivered(service, name, rows, [] if broker is None else [broker.pid]) for name in chosen]


def _made(service: Service, source: LogSource) -> int:
    """Let the query write its result; returns how many rows it has."""
    register(service.client, "streams", "bids", BID, source.connector("bids"), source.dating)
    rows = source.fill(service.dsn, "bids")
    await_driver(service)
    service.client.queries.put(_query(None))
    deadline = time.monotonic() + PATIENCE_S
    while (status := service.client.query(RESULT).status())["read_rows"] < rows:
        if status["state"] == "failed" or time.monotonic() > deadline:
            raise RuntimeError(f"{status['state']} after {status['read_rows']} of {rows} records: {status['error']}")
        time.sleep(POLL_S)
    return rows


def _query(connector: dict[str, Any] | None) -> dict[str, Any]:
    into = {"stream": RESULT} if connector is None else {"stream": RESULT, "connector": connector}
    return {"name": RESULT, "from": {"stream": "bids"}, "into": into}


def _delivered(service: Service, name: str, rows: int, beside: Sequence[int]) -> Delivered:
    with TreeMeter(service.pid, service.postgres_pid, *beside) as meter:
        begun = time.time()
        service.client.queries.put(_query(TARGETS[name]))
        deadline = time.monotonic() + PATIENCE_S
        while (found := service.client.query(RESULT).status()["delivery"]) is None or found["delivered_rows"] < rows:
            if time.monotonic() > deadline or (found is not None and found["state"] == "stopped"):
                raise RuntimeError(f"{name} has not got everything: {found}")
            time.sleep(POLL_S)
        cpu = meter.cpu()
    return Delivered(name, rows, datetime.fromisoformat(found["delivered_at"]).timestamp() - begun, cpu)


def _table(size: str, runs: Sequence[Delivered]) -> Table:
    roles = list(dict.fromkeys(role for run in runs for role in run.cpu))
    table = Table(title=f"a log of NX-T {size}'s bids, delivered; CPU seconds are per million rows")
    for name in ("target", "rows", "seconds", "rows/s", *roles, "all"):
        table.add_column(name, justify="left" if name == "target" else "right")
    for run in runs:
        spent = [seconds / run.rows * 1e6 for seconds in (*(run.cpu.get(role, 0.0) for role in roles), sum(run.cpu.values()))]
        rate = run.rows / run.seconds
        table.add_row(run.target, f"{run.rows:,}", f"{run.seconds:.1f}", f"{rate:,.0f}", *(f"{each:.2f}" for each in spent))
    return table

"""How soon a query commits again after `kill -9` of its driver: `python -m tests.bench recovery [--kills 5] [--json FILE]`.

One light query with 20 records a second. Seconds count from the kill; the steps are what the logs say, the last one is the first new commit.
The archive of classes is there before the first kill, as it is a minute after a service's first start. CPU is what the new driver's processes
have spent by then: on a machine that does other things too it says more than the seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from engine.postgres.links import LinkedConnection
from tests.bench.service import Service, await_logged, fresh_service
from tests.bench.steady import Lane, as_json, observe

LANE = Lane("records", 20, 0.5)
BETWEEN_S = 45.0
"""A driver that lived so long has everything that makes the next start short."""

PATIENCE_S = 120.0
POLL_S = 0.02
_ROUND = "SELECT max(committed_at) FROM log.commit WHERE batch_id IS NOT NULL"
_DRIVER = "SELECT pid FROM slackwater.driver WHERE phase = 'ready'"


def main(arguments: Sequence[str]) -> int:
    """Measure and print; never judges a time."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench recovery")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--between", type=float, default=BETWEEN_S, help="seconds from a commit to the next kill")
    parser.add_argument("--no-spare", action="store_true", help="without a process that waits to take over")
    parser.add_argument("--work", type=Path, default=Path(".slackwater") / "bench")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    more = {"SLACKWATER_SPARK__CLASS_ARCHIVE": "true", "SLACKWATER_LOG__FORMAT": "json", "SLACKWATER_LOG__LEVEL": "DEBUG"}
    if not options.no_spare:
        more["SLACKWATER_DRIVER__SPARE"] = "true"
    with fresh_service(options.work.resolve(), more=more) as service:
        figures = _measure(service, options.kills, options.between)
    _print(figures)
    as_json(options.json, figures)
    return 0


def _measure(service: Service, kills: int, between_s: float) -> list[dict[str, float]]:
    service.client.stream(LANE.name).register(LANE.stream())
    service.client.queries.put(LANE.query(1))
    service.client.query(f"seen_{LANE.name}").status(wait_for="running", timeout=60)
    await_logged(service, "class_archive_made")
    lasts_s = kills * (between_s + PATIENCE_S)
    url = f"http://127.0.0.1:{service.port}"
    threading.Thread(target=observe, args=(url, [LANE], lasts_s), daemon=True).start()
    figures = []
    with LinkedConnection.connect(service.dsn, autocommit=True) as connection:
        for _ in range(kills):
            time.sleep(between_s)
            figures.append(_kill(service, connection))
            Console(width=150).print(figures[-1], highlight=False)
    return figures


def _kill(service: Service, connection: Any) -> dict[str, float]:
    (pid,) = connection.execute(_DRIVER).fetchone()
    (before,) = connection.execute(_ROUND).fetchone()
    killed = time.time()
    os.kill(pid, signal.SIGKILL)
    while (last := connection.execute(_ROUND).fetchone()[0]) <= before or last.timestamp() < killed + POLL_S:
        if time.time() > killed + PATIENCE_S:
            raise TimeoutError(f"no commit within {PATIENCE_S:.0f} s of the kill")
        time.sleep(POLL_S)
    (new,) = connection.execute(_DRIVER).fetchone()
    driver = psutil.Process(new)
    spent = sum(sum(each.cpu_times()[:4]) for each in (driver, *driver.children(recursive=True)))
    return {**_steps(service, killed), "first_commit": last.timestamp() - killed, "cpu_s": spent}


def _steps(service: Service, killed: float) -> dict[str, float]:
    """Return when each step was first logged after the kill, in seconds."""
    found: dict[str, float] = {}
    for log in (service.data_dir / "serve.log", service.data_dir / "driver.log"):
        for line in log.read_text(errors="replace").splitlines():
            if not line.startswith("{"):
                continue
            entry = json.loads(line)
            at = datetime.fromisoformat(entry["timestamp"]).timestamp() if "timestamp" in entry else 0.0
            name = entry["event"] if entry.get("event") != "query_transitioned" else f"query_{entry['to_state']}"
            if at > killed:
                found.setdefault(name, at - killed)
    return found


def _print(figures: Sequence[dict[str, float]]) -> None:
    table = Table(title="seconds from kill -9 of the driver (median, least, most)")
    for name in ("", "median", "least", "most"):
        table.add_column(name, justify="right")
    for name in sorted(
        {name for each in figures for name in each}, key=lambda name: median(each.get(name, 0) for each in figures)
    ):
        values = [each[name] for each in figures if name in each]
        table.add_row(name, *(f"{value:.2f}" for value in (median(values), min(values), max(values))))
    Console(width=150).print(table)

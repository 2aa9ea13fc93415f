"""How soon a record is a visible row: `python -m tests.bench latency [--rates 5000 20000] [--seconds 30] [--json FILE]`.

Records are posted at a steady rate, counted by key into a table, and the table is followed over its event stream. A record's latency ends
when an event brings a row that includes it, and begins before its POST. The phases are what the query's commits say of each batch: medians.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from engine.postgres.links import LinkedConnection
from tests.bench.roles import cpu_by_role
from tests.bench.service import Service, fresh_service
from tests.bench.steady import Lane, as_json, observe, quantile

WARM_S = 12.0
"""Left out: the first batches compile and load."""

EVERY_S = 0.1
TASKS = 2
SAMPLE_S = 0.05
_PHASES = "SELECT batch_id, detail->'phases_ms' FROM log.commit WHERE batch_id IS NOT NULL"


def main(arguments: Sequence[str]) -> int:
    """Measure and print; never judges a time."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench latency")
    parser.add_argument("--rates", type=int, nargs="+", default=[5_000, 20_000], help="records per second")
    parser.add_argument("--seconds", type=float, default=30.0, help="measured, after the warm-up")
    parser.add_argument("--work", type=Path, default=Path(".slackwater") / "bench")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    figures = []
    for rate in options.rates:
        with fresh_service(options.work.resolve()) as service:
            figures.append(_measure(service, rate, options.seconds))
    _print(figures)
    as_json(options.json, figures)
    return 0


def _measure(service: Service, rate: int, seconds: float) -> dict[str, Any]:
    lane = Lane("records", rate, EVERY_S)
    client = service.client
    client.stream(lane.name).register(lane.stream())
    query = lane.query(TASKS)
    client.queries.put(query)
    client.query(query["name"]).status(wait_for="running", timeout=60)
    phases: defaultdict[str, dict[int, int]] = defaultdict(dict)
    is_over = threading.Event()
    sampler = threading.Thread(target=_sample, args=(service.dsn, phases, is_over), daemon=True)
    sampler.start()
    begun_ms = time.time() * 1000
    before: dict[str, float] = {}
    threading.Timer(WARM_S, lambda: before.update(cpu_by_role(service.pid))).start()
    observed = observe(f"http://127.0.0.1:{service.port}", [lane], WARM_S + seconds)[lane.name]
    after = cpu_by_role(service.pid)
    is_over.set()
    sampler.join()
    since_ms = int(begun_ms + WARM_S * 1000)
    latencies, acknowledged = observed.latencies(since_ms), observed.acknowledged(since_ms)
    return {
        "rate": rate,
        "records": sum(lane.per_body for sent, _, _ in observed.bodies if sent >= since_ms),
        "refused": observed.refused,
        "p50_s": quantile(latencies, 0.5),
        "p99_s": quantile(latencies, 0.99),
        "longest_s": quantile(latencies, 1.0),
        "ingest_p50_s": quantile(acknowledged, 0.5),
        "ingest_p99_s": quantile(acknowledged, 0.99),
        "phases_ms": {name: median(list(values.values())[len(values) // 4 :]) for name, values in phases.items()},
        "batches": max((len(values) for values in phases.values()), default=0),
        "cores": {role: (spent - before.get(role, 0.0)) / seconds for role, spent in after.items()},
    }


def _sample(dsn: str, phases: dict[str, dict[int, int]], is_over: threading.Event) -> None:
    with LinkedConnection.connect(dsn, autocommit=True) as connection:
        while not is_over.wait(SAMPLE_S):
            for batch, found in connection.execute(_PHASES).fetchall():
                for name, ms in (found or {}).items():
                    phases[name][batch] = ms


def _print(figures: Sequence[dict[str, Any]]) -> None:
    table = Table(
        title=f"from before the POST to the row's event; one query of {TASKS} tasks; whole service and bench on one machine"
    )
    table.add_column("")
    for each in figures:
        table.add_column(f"{each['rate']:,}/s", justify="right")

    def line(name: str, value: Any) -> None:
        table.add_row(name, *(value(each) for each in figures))

    line("latency p50 / p99 / longest, s", lambda each: f"{each['p50_s']:.2f} / {each['p99_s']:.2f} / {each['longest_s']:.2f}")
    line("ingest p50 / p99, ms", lambda each: f"{each['ingest_p50_s'] * 1e3:.0f} / {each['ingest_p99_s'] * 1e3:.0f}")
    for name in sorted({name for each in figures for name in each["phases_ms"]}):
        line(f"{name}, ms", lambda each, name=name: f"{each['phases_ms'].get(name, float('nan')):.0f}")
    line("batches", lambda each: str(each["batches"]))
    line("cores", lambda each: ", ".join(f"{role} {cores:.2f}" for role, cores in sorted(each["cores"].items())))
    line("records, refused requests", lambda each: f"{each['records']:,}, {each['refused']}")
    Console(width=150).print(table)

"""Many light queries in one driver: `python -m tests.bench many [--queries 1 5 10 20] [--resting 0] [--backlog 1]`.

Each query has a stream of its own with 20 records a second; all are created at once in a fresh service, beside others that have one record
and then rest. Then further ones come and go, one after the other, over streams of the busy ones: how long each takes until its first result, and
until its stop is answered. In the end all rest, for the cost of a query that has nothing to do. Memory is proportional set size, so that shared
pages count once; per query is what is more than without any.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.bench.roles import cpu_by_role, memory_by_role
from tests.bench.service import Service, await_driver, fresh_service
from tests.bench.steady import Lane, as_json, observe, quantile

PER_SECOND = 20
TASKS = 1
WARM_S = 15.0
REST_S = 15.0
START_S = 300.0
AT_ONCE = 16
ASKED_AT_ONCE = 20
APPENDED = 10_000
POLL_S = 0.1
VISITS_S = 45.0
"""For so long the busy queries are fed while others come and go."""

VISIT_POLL_S = 0.02
STAY_S = 1.0
"""How long one stays: in rounds like every other, then."""


def main(arguments: Sequence[str]) -> int:
    """Measure and print; returns 1 where a query did not run to the end, never for a time."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench many")
    parser.add_argument("--queries", type=int, nargs="+", default=[1, 5, 10, 20])
    parser.add_argument("--resting", type=int, default=0, help="further queries that have nothing to do")
    parser.add_argument("--backlog", type=int, default=1, help="records of each stream before its query is created")
    parser.add_argument("--every", type=float, default=0.5, help="seconds between two requests that append to a stream")
    parser.add_argument("--seconds", type=float, default=30.0, help="measured, after the warm-up")
    parser.add_argument("--visits", type=int, default=10, help="queries that come and go beside the busy ones")
    parser.add_argument("--work", type=Path, default=Path(".slackwater") / "bench")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    figures = []
    for number in options.queries:
        with fresh_service(options.work.resolve(), max_queries=max(100, number + options.resting)) as service:
            figures.append(_measure(service, number, options))
            Console(width=150).print(figures[-1], highlight=False)
    _print(figures)
    as_json(options.json, figures)
    return 0 if all(each["alive"] == each["queries"] and each["attempts"] == 0 for each in figures) else 1


def _measure(service: Service, busy: int, options: argparse.Namespace) -> dict[str, Any]:
    number = busy + options.resting
    every = [Lane(f"s{place}", PER_SECOND, options.every) for place in range(number)]
    lanes = every[:busy]
    await_driver(service)
    empty = memory_by_role(service.pid)
    for lane in every:
        service.client.stream(lane.name).register(lane.stream())
        for first in range(0, options.backlog, APPENDED):
            records = min(APPENDED, options.backlog - first)
            service.client.stream(lane.name).append(b'{"key":"first","sent":0}\n' * records)
    begun = time.monotonic()
    with ThreadPoolExecutor(min(number, AT_ONCE)) as pool:
        list(pool.map(service.client.queries.put, [lane.query(TASKS) for lane in every]))
    defined_s = time.monotonic() - begun
    first_s, all_s = _await_commits(service, number, begun)
    begun_ms = time.time() * 1000
    url = f"http://127.0.0.1:{service.port}"
    observe(url, lanes, WARM_S)
    before, clock = _cpu(service), time.monotonic()
    since_ms = int(time.time() * 1000)
    own = time.process_time()
    observed = observe(url, lanes, options.seconds)
    after, busy_s = _cpu(service), time.monotonic() - clock
    load = (time.process_time() - own) / busy_s
    memory = memory_by_role(service.pid)
    starts, stops = _visits(service, url, lanes, options.visits)
    at_rest, clock = _cpu(service), time.monotonic()
    time.sleep(REST_S)
    rested, rest_s = _cpu(service), time.monotonic() - clock
    latencies = sorted(each for lane in observed.values() for each in lane.latencies(since_ms))
    statuses = [service.client.query(f"seen_{lane.name}").status() for lane in every]
    more = {role: (size - empty.get(role, 0.0)) / number for role, size in memory.items()}
    return {
        "queries": number,
        "busy": busy,
        "defined_s": defined_s,
        "alive": sum(status["state"] == "running" for status in statuses),
        "attempts": sum(status["attempt"] for status in statuses),
        "first_result_s": first_s,
        "all_results_s": all_s,
        "p50_s": quantile(latencies, 0.5),
        "p99_s": quantile(latencies, 0.99),
        "visits": len(stops),
        "start_p50_s": quantile(starts, 0.5),
        "start_longest_s": quantile(starts, 1.0),
        "stop_p50_s": quantile(stops, 0.5),
        "stop_longest_s": quantile(stops, 1.0),
        "cores": {role: (spent - before.get(role, 0.0)) / busy_s for role, spent in after.items()},
        "load_cores": load,
        "idle_cores_per_query": {role: (spent - at_rest.get(role, 0.0)) / rest_s / number for role, spent in rested.items()},
        "memory_mib": memory,
        "memory_per_query_mib": more,
        "seconds": time.time() - begun_ms / 1000,
    }


def _visits(service: Service, url: str, lanes: Sequence[Lane], visits: int) -> tuple[list[float], list[float]]:
    """Let queries come and go while the others are fed; returns the sorted seconds until first results, and until stops were answered."""
    starts: list[float] = []
    stops: list[float] = []
    if not visits:
        return starts, stops
    feeding = threading.Thread(target=observe, args=(url, lanes, VISITS_S))
    feeding.start()
    try:
        time.sleep(STAY_S)
        for number in range(visits):
            if not feeding.is_alive():
                break
            started, stopped = _visit(service, lanes[number % len(lanes)], f"visit_{number}")
            starts.append(started)
            stops.append(stopped)
    finally:
        feeding.join()
    return sorted(starts), sorted(stops)


def _visit(service: Service, lane: Lane, name: str) -> tuple[float, float]:
    """Let one query come and go; returns the seconds until its first result, and until its stop was answered."""
    query = service.client.query(name)
    definition = {**lane.query(TASKS), "name": name, "into": {"table": name}}
    started = _until(lambda: service.client.queries.put(definition), lambda: query.status()["batch_id"] is not None)
    time.sleep(STAY_S)
    stopped = _until(query.stop, lambda: query.status()["state"] == "stopped")
    query.delete()
    return started, stopped


def _until(act: Callable[[], object], is_done: Callable[[], bool]) -> float:
    """Return the seconds from a request until something is seen of it."""
    begun = time.monotonic()
    act()
    while not is_done():
        if time.monotonic() - begun > START_S:
            raise TimeoutError(f"nothing was seen within {START_S:.0f} s")
        time.sleep(VISIT_POLL_S)
    return time.monotonic() - begun


def _cpu(service: Service) -> dict[str, float]:
    return cpu_by_role(service.pid) | cpu_by_role(service.postgres_pid)


def _await_commits(service: Service, number: int, begun: float) -> tuple[float, float]:
    """Return the seconds until the first and until the last query had committed."""
    first: float | None = None
    waiting = set(range(number))
    while waiting:
        for place in sorted(waiting):
            if service.client.query(f"seen_s{place}").status()["batch_id"] is not None:
                waiting.remove(place)
                first = first or time.monotonic() - begun
            elif place % ASKED_AT_ONCE == 0:
                break  # those that were created later come later
        if time.monotonic() - begun > START_S:
            raise TimeoutError(f"{len(waiting)} of {number} queries have not committed: {sorted(waiting)[:10]} ...")
        time.sleep(POLL_S)
    assert first is not None
    return first, time.monotonic() - begun


def _print(figures: Sequence[dict[str, Any]]) -> None:
    table = Table(title=f"light queries ({PER_SECOND} records/s each) in one driver, created at once")
    table.add_column("queries, of them busy")
    for each in figures:
        table.add_column(f"{each['queries']}, {each['busy']}", justify="right")

    def line(name: str, value: Any) -> None:
        table.add_row(name, *(value(each) for each in figures))

    line("alive, restarts", lambda each: f"{each['alive']}, {each['attempts']}")
    line("all defined after, s", lambda each: f"{each['defined_s']:.1f}")
    line("first / all results after, s", lambda each: f"{each['first_result_s']:.1f} / {each['all_results_s']:.1f}")
    line("latency p50 / p99, s", lambda each: f"{each['p50_s']:.2f} / {each['p99_s']:.2f}")
    line(
        "first result of one more: median / longest, s", lambda each: f"{each['start_p50_s']:.2f} / {each['start_longest_s']:.2f}"
    )
    line("stop of one: median / longest, s", lambda each: f"{each['stop_p50_s']:.2f} / {each['stop_longest_s']:.2f}")
    line("cores, busy", lambda each: f"{sum(each['cores'].values()):.2f}")
    line("cores of the load, beside these", lambda each: f"{each['load_cores']:.2f}")
    line("% of a core per resting query", lambda each: f"{sum(each['idle_cores_per_query'].values()) * 100:.2f}")
    for role in ("Python workers", "JVM", "driver", "API"):
        line(f"MiB per query: {role}", lambda each, role=role: f"{each['memory_per_query_mib'].get(role, 0.0):.0f}")
    line("MiB per query, all", lambda each: f"{sum(each['memory_per_query_mib'].values()):.0f}")
    Console(width=150).print(table)

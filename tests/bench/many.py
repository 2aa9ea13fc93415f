"""Many light queries in one driver: `python -m tests.bench many [--queries 1 5 10 20] [--resting 0] [--backlog 1]`.

Each query has a stream of its own with 20 records a second; all are created at once in a fresh service, beside others that have one record
and then rest. Then further ones come and go, one after the other, over streams of the busy ones: how long each takes until a follower of its
result sees the first row, and until its stop is answered. In the end all rest, for the cost of a query that has nothing to do. Memory is
proportional set size, so that shared pages count once; per query is what is more than without any. Each step says when it is done.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psycopg
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
APPENDED = 10_000
POLL_S = 0.5
TOLD_EVERY_S = 10.0
VISITS_S = 600.0
"""For so long at most the busy queries are fed while others come and go."""

STAY_S = 1.0
"""How long one stays: in rounds like every other, then."""

T = TypeVar("T")


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


class Progress:
    """Tells how far a measurement is: a line for each step, with the seconds since its beginning."""

    def __init__(self) -> None:
        self._begun = self._told = time.monotonic()

    def tell(self, text: str) -> None:
        """Print a line."""
        self._told = time.monotonic()
        print(f"{self._told - self._begun:8.1f} s  {text}", flush=True)

    def tell_now_and_then(self, text: str) -> None:
        """Print a line, unless one was printed lately."""
        if time.monotonic() - self._told >= TOLD_EVERY_S:
            self.tell(text)


def _measure(service: Service, busy: int, options: argparse.Namespace) -> dict[str, Any]:
    number = busy + options.resting
    progress = Progress()
    progress.tell(f"{number} queries, {busy} of them busy")
    every = [Lane(f"s{place}", PER_SECOND, options.every) for place in range(number)]
    lanes = every[:busy]
    await_driver(service)
    empty = memory_by_role(service.pid)
    progress.tell("the driver is warm")
    _at_once(lambda lane: _make_stream(service, lane, options.backlog), every)
    progress.tell("streams have their records")
    unused, begun = _cpu(service), time.monotonic()
    with ThreadPoolExecutor(1) as beside:
        defining = beside.submit(_at_once, lambda lane: service.client.queries.put(lane.query(TASKS)), every)
        first_s, all_s = _await_commits(service, number, begun, progress)
        defined_s = defining.result()
    starting = _cpu(service)
    begun_ms = time.time() * 1000
    url = f"http://127.0.0.1:{service.port}"
    observe(url, lanes, WARM_S)
    progress.tell("warm")
    before, clock = _cpu(service), time.monotonic()
    since_ms = int(time.time() * 1000)
    own = time.process_time()
    observed = observe(url, lanes, options.seconds)
    after, busy_s = _cpu(service), time.monotonic() - clock
    load = (time.process_time() - own) / busy_s
    memory = memory_by_role(service.pid)
    latencies = sorted(each for lane in observed.values() for each in lane.latencies(since_ms))
    progress.tell(f"latency p50 / p99: {quantile(latencies, 0.5):.2f} / {quantile(latencies, 0.99):.2f} s")
    starts, stops = _visits(service, url, lanes, options.visits)
    progress.tell("visits are over")
    at_rest, clock = _cpu(service), time.monotonic()
    time.sleep(REST_S)
    rested, rest_s = _cpu(service), time.monotonic() - clock
    progress.tell("rested")
    more = {role: (size - empty.get(role, 0.0)) / number for role, size in memory.items()}
    return {
        "queries": number,
        "busy": busy,
        "defined_s": defined_s,
        "alive": sum(each["state"] == "running" for each in _glances(service)),
        "attempts": _further_launches(service),
        "first_result_s": first_s,
        "all_results_s": all_s,
        "cpu_s_until_all_results": {role: spent - unused.get(role, 0.0) for role, spent in starting.items()},
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
    is_over = threading.Event()
    feeding = threading.Thread(target=observe, args=(url, lanes, VISITS_S, is_over.is_set))
    feeding.start()
    try:
        time.sleep(STAY_S)
        with httpx.Client(base_url=url, timeout=START_S) as http:
            for number in range(visits):
                started, stopped = _visit(http, lanes[number % len(lanes)], f"visit_{number}")
                starts.append(started)
                stops.append(stopped)
    finally:
        is_over.set()
        feeding.join()
    return sorted(starts), sorted(stops)


def _visit(http: httpx.Client, lane: Lane, name: str) -> tuple[float, float]:
    """Let one query come and go; returns the seconds until a follower sees its first result, and until its stop is answered."""
    begun = time.monotonic()
    http.put(f"/v1/queries/{name}", json={**lane.query(TASKS), "name": name, "into": {"table": name}}).raise_for_status()
    with http.stream("GET", f"/v1/tables/{name}/changes?from=earliest", headers={"accept": "text/event-stream"}) as events:
        next(line for line in events.raise_for_status().iter_lines() if line.startswith("event: change"))
    started = time.monotonic() - begun
    time.sleep(STAY_S)
    begun = time.monotonic()
    http.put(f"/v1/queries/{name}/desired-state", json={"state": "stopped"}).raise_for_status()
    state = http.get(f"/v1/queries/{name}/status?wait_for=stopped").raise_for_status().json()["state"]
    stopped = time.monotonic() - begun
    if state != "stopped":
        raise TimeoutError(f"{name} is {state} after {stopped:.0f} s")
    http.delete(f"/v1/queries/{name}").raise_for_status()
    return started, stopped


def _cpu(service: Service) -> dict[str, float]:
    return cpu_by_role(service.pid) | cpu_by_role(service.postgres_pid)


def _at_once(act: Callable[[T], object], each: Sequence[T]) -> float:
    """Do something for each, several at a time; returns the seconds that took."""
    begun = time.monotonic()
    with ThreadPoolExecutor(min(len(each), AT_ONCE)) as pool:
        list(pool.map(act, each))
    return time.monotonic() - begun


def _make_stream(service: Service, lane: Lane, backlog: int) -> None:
    stream = service.client.stream(lane.name)
    stream.register(lane.stream())
    for first in range(0, backlog, APPENDED):
        stream.append(b'{"key":"first","sent":0}\n' * min(APPENDED, backlog - first))


def _glances(service: Service) -> Iterable[dict[str, Any]]:
    """Return every query at a glance; hundreds are asked for in one request."""
    found, cursor = [], ""
    while True:
        answer = httpx.get(f"http://127.0.0.1:{service.port}/v1/overview{cursor}", timeout=START_S).raise_for_status().json()
        found += answer["queries"]
        if answer["next"] is None:
            return found
        cursor = f"?cursor={answer['next']}"


def _further_launches(service: Service) -> int:
    """Count the launches beyond each query's first."""
    with psycopg.connect(service.dsn) as connection:
        row = connection.execute("SELECT count(*) FROM slackwater.query_run WHERE epoch > 1").fetchone()
    assert row is not None
    return int(row[0])


def _await_commits(service: Service, number: int, begun: float, progress: Progress) -> tuple[float, float]:
    """Return the seconds until the first and until the last query had committed."""
    first: float | None = None
    while True:
        glances = _glances(service)
        done, since_s = sum(each["batch_id"] is not None for each in glances), time.monotonic() - begun
        first = since_s if first is None and done else first
        if done == number and first is not None:
            progress.tell(f"{number} queries have results, {since_s:.1f} s after the first was asked for")
            return first, since_s
        progress.tell_now_and_then(f"{done} of {number} queries have results")
        if since_s > START_S:
            raise TimeoutError(f"{number - done} of {number} queries have not committed within {START_S:.0f} s")
        time.sleep(POLL_S)


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
    line(
        "CPU ms per query until then",
        lambda each: f"{sum(each['cpu_s_until_all_results'].values()) * 1000 / each['queries']:.0f}",
    )
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

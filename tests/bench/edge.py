"""What appends and event streams cost, without queries that run: `python -m tests.bench edge [--lanes 20] [--every 0.5] [--seconds 10]`.

An API process of its own. First each lane's stream is appended to as in `many`; then each lane's table is followed while this process commits
rows to it through the real sink; then nothing happens. Printed: milliseconds of CPU of the API per append and per commit that somebody follows,
of Postgres and of what puts the load on it per append, and what is spent at rest.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import uvloop
from rich.console import Console
from rich.table import Table
from slackwater import Client

from tests.api.change_writer import ChangeWriter
from tests.bench.roles import cpu_by_role
from tests.bench.service import api_alone
from tests.bench.steady import KEYS, Lane, Observed, feed, watch
from tests.bench.wire import Service

PER_SECOND = 20
WARM_S = 2.0


def main(arguments: Sequence[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench edge")
    parser.add_argument("--lanes", type=int, default=20)
    parser.add_argument(
        "--every", type=float, default=0.5, help="seconds between two appends to a stream, and two commits to a table"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="of each part")
    options = parser.parse_args(arguments)
    lanes = [Lane(f"s{place}", PER_SECOND, options.every) for place in range(options.lanes)]
    with tempfile.TemporaryDirectory(prefix="slackwater-edge-") as folder, api_alone(Path(folder)) as (port, dsn, process):
        with Client(f"http://127.0.0.1:{port}") as client:
            for lane in lanes:
                client.stream(lane.name).register(lane.stream())
                client.queries.put(lane.query(1))
        server = int(next((Path(folder) / "postgres").rglob("postmaster.pid")).read_text().split()[0])
        edge = Edge(Service("127.0.0.1", port), dsn, process, server)
        uvloop.run(edge.measure(lanes, options.seconds))
    return 0


class Edge:
    """One API process and what is measured of it."""

    def __init__(self, service: Service, dsn: str, process: psutil.Process, postgres: int) -> None:
        self._service = service
        self._dsn = dsn
        self._process = process
        self._postgres = postgres

    async def measure(self, lanes: Sequence[Lane], seconds: float) -> None:
        """Do all parts, and print."""
        table = Table(title=f"{len(lanes)} streams and tables, one API process")
        table.add_column("ms of CPU")
        table.add_column("each", justify="right")
        await self._append(lanes, WARM_S)
        print(f"appends to process {self._process.pid}", flush=True)
        before = self._spent()
        appends = await self._append(lanes, seconds)
        for what, spent in self._since(before).items():
            table.add_row(f"append of {lanes[0].per_body}: {what}", f"{spent * 1000 / appends:.2f}")
        observed = [Observed() for _ in lanes]
        watching = [asyncio.create_task(watch(self._service, lane, seen)) for lane, seen in zip(lanes, observed, strict=True)]
        writers = [ChangeWriter(self._dsn, f"seen_{lane.name}") for lane in lanes]
        await self._commit(writers, lanes, WARM_S)
        print("commits", flush=True)
        before = self._spent()
        commits = await self._commit(writers, lanes, seconds)
        table.add_row(f"commit of {lanes[0].per_body}: API", f"{self._since(before)['API'] * 1000 / commits:.2f}")
        for writer in writers:
            writer.__exit__(None, None, None)
        await asyncio.sleep(WARM_S)
        before = self._spent()
        await asyncio.sleep(seconds)
        for what, spent in self._since(before).items():
            table.add_row(f"at rest, a second: {what}", f"{spent * 1000 / seconds:.2f}")
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        Console(width=120).print(table)

    async def _append(self, lanes: Sequence[Lane], seconds: float) -> int:
        observed = [Observed() for _ in lanes]
        await asyncio.gather(
            *(
                feed(self._service, lane, seen, seconds, place / len(lanes))
                for place, (lane, seen) in enumerate(zip(lanes, observed, strict=True))
            )
        )
        return sum(len(seen.bodies) for seen in observed)

    async def _commit(self, writers: Sequence[ChangeWriter], lanes: Sequence[Lane], seconds: float) -> int:
        """Commit to the tables in turn, as a slot does it."""
        begun = time.monotonic()
        for number in itertools.count():
            place = number % len(writers)
            due = begun + number * lanes[place].every_s / len(writers)
            if max(due, time.monotonic()) - begun > seconds:  # a busy machine does fewer
                return number
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            now = int(time.time() * 1000)
            keys = [f"k{(number // len(writers) * lanes[place].per_body + each) % KEYS}" for each in range(lanes[place].per_body)]
            rows = [("upsert", {"key": key, "records": number, "sent": now}, now) for key in keys]
            await asyncio.to_thread(writers[place].commit, rows)
        raise AssertionError("never here")

    def _spent(self) -> dict[str, float]:
        own = psutil.Process().cpu_times()
        api = self._process.cpu_times()
        postgres = sum(cpu_by_role(self._postgres).values())
        return {"API": api.user + api.system, "Postgres": postgres, "load": own.user + own.system}

    def _since(self, before: dict[str, float]) -> dict[str, float]:
        return {what: spent - before[what] for what, spent in self._spent().items()}

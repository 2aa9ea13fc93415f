"""What followers cost: `python -m tests.bench sse [--clients 1000] [--listeners 100] [--commits 200]`.

An API process of its own without a driver; this process holds the clients and commits through the real sink. Printed: memory of the
API process per idle event stream, its CPU while nothing happens, and the time from the end of a commit to the arrival of its event.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table
from slackwater import Client

from tests.api.change_writer import ChangeWriter
from tests.api.conftest import STREAM
from tests.bench.service import api_alone

TOTALS = {
    "name": "totals",
    "from": {"stream": "departures"},
    "group_by": ["origin"],
    "aggregate": {"flights": "count(*)"},
    "into": {"table": "totals"},
}
PATH = "/v1/tables/totals/changes?from=latest"
IDLE_SECONDS = 5.0
COMMIT_EVERY_SECONDS = 0.05


def main(arguments: Sequence[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench sse")
    parser.add_argument("--clients", type=int, default=1_000, help="idle event streams")
    parser.add_argument("--listeners", type=int, default=100, help="event streams in the measurement of latency")
    parser.add_argument("--commits", type=int, default=200)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="slackwater-sse-") as folder, api_alone(Path(folder)) as (port, dsn, process):
        _prepare(port)
        asyncio.run(_measure(Console(width=120), port, dsn, process, options))
    return 0


async def _measure(console: Console, port: int, dsn: str, process: psutil.Process, options: argparse.Namespace) -> None:
    warm = await _streams(port, 20)
    _leave(warm)
    before = process.memory_info().rss
    idle = await _streams(port, options.clients)
    await asyncio.sleep(1)
    with_clients = process.memory_info().rss
    process.cpu_percent()
    await asyncio.sleep(IDLE_SECONDS)
    cpu = process.cpu_percent()
    _leave(idle)
    listeners = await _streams(port, options.listeners)
    waits = await _latencies(listeners, dsn, options.commits)
    _leave(listeners)
    table = Table(title=f"event streams of one table, one API process, {os.cpu_count()} cores")
    for name in ("what", "figure"):
        table.add_column(name, justify="left" if name == "what" else "right")
    table.add_row("memory without clients", f"{before / 2**20:,.1f} MiB")
    table.add_row(f"memory with {options.clients:,} idle clients", f"{with_clients / 2**20:,.1f} MiB")
    table.add_row("more per client", f"{(with_clients - before) / options.clients / 1024:,.1f} KiB")
    table.add_row(f"CPU with {options.clients:,} idle clients", f"{cpu:.1f} % of a core")
    table.add_row(f"commit to event, {options.listeners} clients, p50", f"{_quantile(waits, 0.5) * 1e3:,.1f} ms")
    table.add_row(f"commit to event, {options.listeners} clients, p99", f"{_quantile(waits, 0.99) * 1e3:,.1f} ms")
    table.add_row("events received", f"{len(waits):,} of {options.listeners * options.commits:,}")
    console.print(table)


async def _streams(port: int, number: int) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open event streams, each up to its first event."""
    opened = []
    for _ in range(number):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode())
        await reader.readuntil(b"event: position")
        opened.append((reader, writer))
    return opened


def _leave(streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]) -> None:
    for _, writer in streams:
        writer.close()


async def _latencies(streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]], dsn: str, commits: int) -> list[float]:
    done = [0.0] * commits
    arrived: list[list[float]] = [[] for _ in streams]

    async def listen(reader: asyncio.StreamReader, times: list[float]) -> None:
        while len(times) < commits:
            line = await reader.readline()
            if line.startswith(b'data: {"op"'):
                times.append(time.perf_counter())
                assert json.loads(line[6:])["row"]["flights"] == len(times) - 1

    listening = [asyncio.create_task(listen(reader, times)) for (reader, _), times in zip(streams, arrived, strict=True)]
    with ChangeWriter(dsn, "totals") as launch:
        for number in range(commits):
            await asyncio.to_thread(launch.commit, [("upsert", {"origin": "JFK", "flights": number}, number)])
            done[number] = time.perf_counter()
            await asyncio.sleep(COMMIT_EVERY_SECONDS)
        await asyncio.wait_for(asyncio.gather(*listening), 60)
    # NOTIFY leaves with the commit: the fastest events arrive before the sink's own connection has its answer.
    return sorted(max(at - done[number], 0.0) for times in arrived for number, at in enumerate(times))


def _quantile(waits: Sequence[float], share: float) -> float:
    return waits[min(int(len(waits) * share), len(waits) - 1)]


def _prepare(port: int) -> None:
    with Client(f"http://127.0.0.1:{port}") as client:
        client.stream("departures").register(STREAM)
        client.queries.put(TOTALS)

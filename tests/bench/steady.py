"""A steady stream of records into queries, and when each of them could be seen: from the moment before its POST to the event of its row."""

from __future__ import annotations

import asyncio
import bisect
import json
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import uvloop

from tests.bench.wire import Service

KEYS = 200
_SENT = "987654321"
"""Stands for the moment of sending in a prepared body."""

_EVENTS_S = 10.0
"""The last rows have this long to be seen."""

_LOOK_S = 0.2
_ANSWER_S = 60.0


@dataclass(frozen=True, slots=True)
class Lane:
    """One query with its own stream.

    Attributes:
        name: of stream and query.
        per_second: records.
        every_s: time between two requests.
    """

    name: str
    per_second: int
    every_s: float

    @property
    def per_body(self) -> int:
        return max(1, round(self.per_second * self.every_s))

    @property
    def records(self) -> str:
        return f"/v1/streams/{self.name}/records"

    @property
    def changes(self) -> str:
        return f"/v1/tables/seen_{self.name}/changes"

    def stream(self) -> dict[str, Any]:
        return {
            "key": ["key"], "columns": {"key": "string", "sent": "bigint"}, "event_time": "sent",
            "connector": {"type": "log", "partitions": 1},
        }  # fmt: skip

    def query(self, tasks: int) -> dict[str, Any]:
        return {
            "name": f"seen_{self.name}", "from": {"stream": self.name}, "group_by": ["key"], "tasks": tasks,
            "aggregate": {"records": "count(*)", "sent": "max(sent)"}, "into": {"table": f"seen_{self.name}"},
        }  # fmt: skip


@dataclass(slots=True)
class Observed:
    """What happened in one lane.

    Attributes:
        bodies: (moment of sending in ms, seconds until it was acknowledged, its keys).
        seen: key → (moments of sending that its row showed, when), both rising.
        refused: requests that were not taken.
        is_followed: the follower has its place in the log.
    """

    bodies: list[tuple[int, float, Sequence[int]]] = field(default_factory=list)
    seen: dict[str, tuple[list[int], list[float]]] = field(default_factory=lambda: defaultdict(lambda: ([], [])))
    refused: int = 0
    is_followed: bool = False

    def latencies(self, since_ms: int) -> list[float]:
        """Return the seconds until each (body, key) could be seen, sorted; infinite for what never was."""
        found = []
        for sent, _, keys in self.bodies:
            if sent < since_ms:
                continue
            for key in keys:
                values, moments = self.seen[f"k{key}"]
                place = bisect.bisect_left(values, sent)
                found.append(moments[place] - sent / 1000 if place < len(moments) else float("inf"))
        return sorted(found)

    def acknowledged(self, since_ms: int) -> list[float]:
        return sorted(seconds for sent, seconds, _ in self.bodies if sent >= since_ms)


def observe(url: str, lanes: Sequence[Lane], seconds: float, is_over: Callable[[], bool] = lambda: False) -> dict[str, Observed]:
    """Feed all lanes at their rates and follow their tables, for so long or until it is over. Streams and queries exist already."""
    parts = urlsplit(url)
    service = Service(parts.hostname or "127.0.0.1", parts.port or 80)
    return uvloop.run(_observe(service, lanes, seconds, is_over))


async def _observe(service: Service, lanes: Sequence[Lane], seconds: float, is_over: Callable[[], bool]) -> dict[str, Observed]:
    observed = {lane.name: Observed() for lane in lanes}
    watchers = [asyncio.create_task(watch(service, lane, observed[lane.name])) for lane in lanes]
    # Hundreds of followers that come at once take a while to be let in, which says nothing about the queries.
    opened_by = time.monotonic() + _ANSWER_S
    while not all(each.is_followed for each in observed.values()) and time.monotonic() < opened_by:
        await asyncio.sleep(_LOOK_S)
    await asyncio.gather(
        *(feed(service, lane, observed[lane.name], seconds, place / len(lanes), is_over) for place, lane in enumerate(lanes))
    )
    deadline = time.monotonic() + _EVENTS_S
    while time.monotonic() < deadline and any(each.latencies(0)[-1:] == [float("inf")] for each in observed.values()):
        await asyncio.sleep(_LOOK_S)
    for watcher in watchers:
        if watcher.done():
            watcher.result()  # says what went wrong
        watcher.cancel()
    await asyncio.gather(*watchers, return_exceptions=True)
    return observed


async def feed(
    service: Service,
    lane: Lane,
    observed: Observed,
    seconds: float,
    shift: float,
    is_over: Callable[[], bool] = lambda: False,
) -> None:
    """Send bodies at fixed moments; one that is late is sent at once, so that a stall of the service is not left out."""
    bodies = [
        (sorted(set(keys)), "\n".join(f'{{"key":"k{key}","sent":{_SENT}}}' for key in keys))
        for first in range(0, KEYS, lane.per_body)
        if (keys := [(first + each) % KEYS for each in range(lane.per_body)])
    ]
    begun = time.monotonic() + shift * lane.every_s
    number, most = 0, int(seconds / lane.every_s)
    while number < most and not is_over():
        with suppress(OSError, EOFError):
            async with service.connection() as wire:
                while number < most and not is_over():
                    due = begun + number * lane.every_s
                    await asyncio.sleep(max(0.0, due - time.monotonic()))
                    # What waits because the request before it took long has waited.
                    sent = int((time.time() - max(0.0, time.monotonic() - due)) * 1000)
                    keys, body = bodies[number % len(bodies)]
                    number += 1
                    observed.refused += 1  # until it is taken
                    clock = time.monotonic()
                    async with asyncio.timeout(_ANSWER_S):
                        status = await wire.post(lane.records, "application/x-ndjson", body.replace(_SENT, str(sent)).encode())
                    if status == 200:
                        observed.refused -= 1
                        observed.bodies.append((sent, time.monotonic() - clock, keys))


async def watch(service: Service, lane: Lane, observed: Observed) -> None:
    """Follow a table for ever, across any number of connections."""
    where = "from=earliest"
    while True:
        with suppress(OSError, EOFError):
            async with service.connection() as wire, aclosing(wire.events(f"{lane.changes}?{where}")) as chunks:
                async for chunk in chunks:
                    now = time.time()
                    observed.is_followed = True
                    for kind, event_id, data in chunk:
                        where = f"cursor={event_id}"
                        if kind == "change":
                            row = data["row"]
                            values, moments = observed.seen[row["key"]]
                            if not values or row["sent"] > values[-1]:
                                values.append(row["sent"])
                                moments.append(now)
        await asyncio.sleep(_LOOK_S)


def quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[int(share * (len(ordered) - 1))] if ordered else float("nan")


def as_json(path: Any, figures: Any) -> None:
    """Write figures where they were asked for."""
    if path is not None:
        path.write_text(json.dumps(figures, indent=1, default=str) + "\n")

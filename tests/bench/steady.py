"""A steady stream of records into queries, and when each of them could be seen: from the moment before its POST to the event of its row."""

from __future__ import annotations

import bisect
import json
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from slackwater import Client, ServiceError, Unreachable

KEYS = 200
_SENT = "987654321"
"""Stands for the moment of sending in a prepared body."""

_EVENTS_S = 10.0
"""The last rows have this long to be seen."""

_ENDING_S = 1.0


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
    """

    bodies: list[tuple[int, float, Sequence[int]]] = field(default_factory=list)
    seen: dict[str, tuple[list[int], list[float]]] = field(default_factory=lambda: defaultdict(lambda: ([], [])))
    refused: int = 0

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


def observe(url: str, lanes: Sequence[Lane], seconds: float) -> dict[str, Observed]:
    """Feed all lanes at their rates and follow their tables. Streams and queries exist already."""
    observed = {lane.name: Observed() for lane in lanes}
    is_over = threading.Event()
    watchers = [_thread(_watch, url, lane, observed[lane.name], is_over) for lane in lanes]
    feeders = [_thread(_feed, url, lane, observed[lane.name], seconds, place / len(lanes)) for place, lane in enumerate(lanes)]
    for feeder in feeders:
        feeder.join()
    deadline = time.monotonic() + _EVENTS_S
    while time.monotonic() < deadline and any(each.latencies(0)[-1:] == [float("inf")] for each in observed.values()):
        time.sleep(0.2)
    is_over.set()
    # Each ends with its next event, which may be long in coming: all together are waited for.
    deadline = time.monotonic() + _ENDING_S
    for watcher in watchers:
        watcher.join(max(deadline - time.monotonic(), 0))
    return observed


def _thread(target: Any, *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, daemon=True)
    thread.start()
    return thread


def _feed(url: str, lane: Lane, observed: Observed, seconds: float, shift: float) -> None:
    """Send bodies at fixed moments; one that is late is sent at once, so that a stall of the service is not left out."""
    bodies = [
        (keys, "\n".join(f'{{"key":"k{key}","sent":{_SENT}}}' for key in keys))
        for first in range(0, KEYS, lane.per_body)
        if (keys := [(first + each) % KEYS for each in range(lane.per_body)])
    ]
    begun = time.monotonic() + shift * lane.every_s
    with Client(url, timeout=60) as client:
        for number in range(int(seconds / lane.every_s)):
            due = begun + number * lane.every_s
            time.sleep(max(0.0, due - time.monotonic()))
            # What waits because the request before it took long has waited.
            sent = int((time.time() - max(0.0, time.monotonic() - due)) * 1000)
            keys, body = bodies[number % len(bodies)]
            clock = time.monotonic()
            try:
                client.stream(lane.name).append(body.replace(_SENT, str(sent)).encode())
            except (ServiceError, Unreachable):
                observed.refused += 1
                continue
            observed.bodies.append((sent, time.monotonic() - clock, sorted(set(keys))))


def _watch(url: str, lane: Lane, observed: Observed, is_over: threading.Event) -> None:
    with Client(url, timeout=60) as client, suppress(Unreachable):
        for event in client.table(f"seen_{lane.name}").changes("earliest"):
            if is_over.is_set():
                return
            if event.kind != "change":
                continue
            row = event.data["row"]
            values, moments = observed.seen[row["key"]]
            if not values or row["sent"] > values[-1]:
                values.append(row["sent"])
                moments.append(time.time())


def quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[int(share * (len(ordered) - 1))] if ordered else float("nan")


def as_json(path: Any, figures: Any) -> None:
    """Write figures where they were asked for."""
    if path is not None:
        path.write_text(json.dumps(figures, indent=1, default=str) + "\n")

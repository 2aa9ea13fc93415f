"""Half an hour of work with a hundred queries that come and go: nothing keeps growing. ``make soak``; SOAK_MINUTES says how long.

Three queries with all kinds of state stay and are restarted now and then. A hundred light ones share slots beside them, the oldest of which
are replaced every few seconds. One gets so many records at once, now and then, that it goes on in a slot of its own, and comes back.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest
from slackwater import Client, Json, ServiceError, Unreachable

from tests.faults.crowd import Bulk
from tests.faults.growth import Samples, of_service
from tests.faults.service import Service, service, until

MINUTES = float(os.environ.get("SOAK_MINUTES", "30"))
pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(MINUTES * 60 + 900)]

SAMPLE_S = 10.0
LIFECYCLE_S = 20.0
REPLACE_S = 4.0
BURST_S = 75.0
"""A query that was heavy shares again after half a minute."""

START_S = 300.0
ALIVE, REPLACED = 100, 3
"""Light queries, and how many of them are replaced at once."""

SETTINGS = {
    "SLACKWATER_DRIVER__MAX_QUERIES": "200",
    # A heap that is full soon, and retentions that come round many times, so that minutes show what days would.
    "SLACKWATER_SPARK__DRIVER_MEMORY": "512m",
    "SLACKWATER_TRIM_INTERVAL_S": "5",
    "SLACKWATER_CHANGES_RETENTION_MS": "40000",
    "SLACKWATER_STATE_RETENTION": "40s",
    "SLACKWATER_HISTORY_ROWS": "100",
    "SLACKWATER_LOG__LEVEL": "WARNING",
}
COLUMNS = {"k": "string", "n": "bigint", "at": "bigint"}
LOG = {"type": "log", "partitions": 2, "retention": "40s"}
JOIN: Json = {"table": "prices", "as": "p", "type": "left", "on": "orders.k = p.k", "grace": "2s", "late": "drop"}
QUERIES: list[Json] = [
    {
        "name": "priced", "from": {"stream": "orders"}, "joins": [JOIN], "late_records": {"max_rows": 200},
        "select": {"k": "orders.k", "n": "orders.n", "price": "p.n"}, "into": {"stream": "priced", "retention": "40s"},
    },
    {
        "name": "counted", "from": {"stream": "orders"}, "group_by": ["k"],
        "window": {"type": "tumbling", "size": "5s", "grace": "2s", "retention": "60s"}, "aggregate": {"n": "count(*)", "total": "sum(n)"},
        "suppress": {"mode": "until_window_closes"}, "late_records": {"max_rows": 200}, "into": {"table": "counted"},
    },
    {
        "name": "latest", "from": {"table": "prices"}, "where": "n >= 0", "select": {"k": "k", "n": "n"},
        "into": {"table": "latest", "versioned": {"history_retention": "30s"}},
    },
]  # fmt: skip
EXTRAS: list[Json] = [
    {"group_by": ["n"], "aggregate": {"m": "count(*)"}},
    {"where": "n < 10", "select": {"k": "k", "n": "n"}},
    {
        "group_by": ["n"], "aggregate": {"m": "sum(n)"},
        "window": {"type": "tumbling", "size": "5s", "grace": "2s", "retention": "30s"},
    },
]  # fmt: skip
HEAVY = "heavy"


_AGE_KEYS = "UPDATE log.append_key SET expires_at = expires_at - interval '23 h 59 min' WHERE expires_at > now() + interval '1 h'"
"""An idempotency key is kept for a day, here for a minute or two."""


class Load(threading.Thread):
    """Appends for ever: orders of keys that come and go, prices that are deleted again, late ones, and some that are no records."""

    def __init__(self, url: str) -> None:
        super().__init__(name="load", daemon=True)
        self._url = url
        self._is_over = threading.Event()
        self.sent = 0

    def run(self) -> None:
        chance = random.Random(5)
        with Client(self._url, timeout=20) as client:
            while not self._is_over.wait(0.4):
                with suppress(Unreachable, ServiceError):
                    self._append(client, chance)

    def _append(self, client: Client, chance: random.Random) -> None:
        now = time.time_ns() // 1_000_000
        current = now // 15_000
        prices = [{"k": f"{current}-{n}", "n": n, "at": now} for n in range(10)]
        old = [{"k": f"{current - 4}-{n}", "n": -1, "at": now} for n in range(10)]
        orders = [
            {
                "k": f"{current}-{chance.randrange(12)}",
                "n": chance.randrange(20),
                "at": now - chance.randrange(900) - 30_000 * (number % 50 == 0),
            }
            for number in range(100)
        ]
        ticks = [{"k": f"{current}", "n": chance.randrange(20), "at": now} for _ in range(8)]
        client.stream("ticks").append(_lines(ticks))
        client.table("prices").append(_lines(prices + old))
        client.stream("orders").append(_lines(orders), idempotency_key=f"{now}")
        self.sent += len(orders)

    def stop(self) -> None:
        self._is_over.set()
        self.join()


def _lines(records: list[Json]) -> bytes:
    return "\n".join(json.dumps(record) for record in records).encode()


@pytest.fixture
def running() -> Iterator[Service]:
    with service(SETTINGS) as running:
        yield running


class Crowd:
    """The light queries.

    Attributes:
        names: the oldest first.
        made: how many there were in all.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self.names: deque[str] = deque()
        self.made = 0

    def fill(self) -> None:
        """Make as many as are missing."""
        for _ in range(ALIVE - len(self.names)):
            kind, name = EXTRAS[self.made % len(EXTRAS)], f"extra{self.made}"
            into = {"stream": name, "retention": "40s"} if "select" in kind else {"table": name}
            self._client.queries.put(
                {**kind, "name": name, "from": {"stream": "ticks"}, "start": "latest", "into": into, "tasks": 1}
            )
            self.names.append(name)
            self.made += 1

    def replace(self) -> None:
        """Let the oldest go, and others come; what the service refuses now comes with the next time."""
        with suppress(Unreachable, ServiceError):
            for _ in range(REPLACED):
                self._client.query(self.names[0]).delete()
                self.names.popleft()
        with suppress(Unreachable, ServiceError):
            self.fill()

    def not_running(self) -> dict[str, str]:
        states = {name: self._client.query(name).status()["state"] for name in self.names}
        return {name: state for name, state in states.items() if state != "running"}


class Slots:
    """In which slots the heavy query was seen, each change once."""

    def __init__(self, client: Client) -> None:
        self._client, self.seen = client, list[str]()

    def look(self) -> None:
        execution = self._client.query(HEAVY).status()["execution"]
        if execution is not None and self.seen[-1:] != [execution["mode"]]:
            self.seen.append(execution["mode"])


class Due:
    """What is to be done every so many seconds."""

    def __init__(self, every_s: float) -> None:
        self._every_s, self._last = every_s, time.monotonic()

    def __bool__(self) -> bool:
        if time.monotonic() - self._last < self._every_s:
            return False
        self._last = time.monotonic()
        return True


def make(client: Client) -> None:
    """Make the sources, and the queries that stay."""
    for stream in ("orders", "ticks", "bulk"):
        client.stream(stream).register({"key": ["k"], "columns": COLUMNS, "event_time": "at", "connector": LOG})
    prices = {"key": ["k"], "columns": COLUMNS, "event_time": "at", "connector": LOG, "versioned": {"history_retention": "30s"}}
    client.table("prices").register(prices)
    for query in QUERIES:
        client.queries.put({**query, "tasks": 2})
    aggregate = {"n": "count(*)", "total": "sum(n)"}
    client.queries.put(
        {
            "name": HEAVY,
            "from": {"stream": "bulk"},
            "group_by": ["k"],
            "tasks": 2,
            "aggregate": aggregate,
            "into": {"table": HEAVY},
        }
    )


def at_work(client: Client, crowd: Crowd, samples: Samples, running: Service, dsn: str) -> tuple[int, list[str]]:
    """Let queries come and go for as long as it is to last; returns how many restarts there were, and the heavy query's slots."""
    sample, replace, restart, burst = Due(SAMPLE_S), Due(REPLACE_S), Due(LIFECYCLE_S), Due(BURST_S)
    slots, bulk = Slots(client), Bulk()
    begun, restarts = time.monotonic(), 0
    client.stream("bulk").append(bulk.body()[2])
    while time.monotonic() - begun < MINUTES * 60:
        time.sleep(0.5)
        with suppress(Unreachable, ServiceError):
            slots.look()
        if replace:
            crowd.replace()
        if burst:
            with suppress(Unreachable, ServiceError):
                client.stream("bulk").append(bulk.body()[2])
        if restart:
            with suppress(Unreachable, ServiceError):
                client.query(QUERIES[restarts % len(QUERIES)]["name"]).restart()
            restarts += 1
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(_AGE_KEYS)
        if sample:
            samples.add(of_service(running, dsn))
    return restarts, slots.seen


def test_nothing_keeps_growing(running: Service) -> None:
    samples = Samples()
    with Client(running.url, timeout=60) as client:
        make(client)
        crowd = Crowd(client)
        crowd.fill()
        for name in [query["name"] for query in QUERIES] + [HEAVY, *crowd.names]:
            until(f"{name} runs", lambda name=name: client.query(name).status()["state"] == "running", START_S)
        dsn = running.driver().environ()["SLACKWATER_DATABASE_URL"]
        load = Load(running.url)
        load.start()
        restarts, slots = at_work(client, crowd, samples, running, dsn)
        until("all light queries run", lambda: crowd.not_running() == {}, START_S)
        load.stop()
        lags = {name: _lag(client, name) for name in [query["name"] for query in QUERIES] + [crowd.names[0]]}
    trends = samples.trends()
    print(
        f"{MINUTES:g} minutes, {load.sent:,} orders, {restarts} restarts, {crowd.made - ALIVE} of {ALIVE} light queries replaced"
    )
    print(f"lag {lags}; the heavy query's slots: {slots}")
    print(f"{'after the warm-up':<28}{'level':>12}{'growth':>12}{'allowed':>12}")
    print("\n".join(map(str, trends)))
    assert load.sent > MINUTES * 60 * 20
    assert crowd.made - ALIVE > MINUTES * 60 / REPLACE_S, "one or more each time"
    assert {"dedicated", "shared"} <= set(slots)
    assert [str(trend) for trend in trends if trend.is_growing] == []


def _lag(client: Client, query: str) -> int:
    return sum(partition["lag"] for feed in client.query(query).status()["progress"] for partition in feed["partitions"])

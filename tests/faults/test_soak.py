"""A service at work for half an hour: nothing of it keeps growing. ``make soak``; SOAK_MINUTES says how long."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest
from slackwater import Client, Json, ServiceError, Unreachable

from tests.faults.growth import Samples, of_service
from tests.faults.service import Service, service, until

MINUTES = float(os.environ.get("SOAK_MINUTES", "30"))
pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(MINUTES * 60 + 900)]

SAMPLE_S = 10.0
LIFECYCLE_S = 20.0
START_S = 180.0
SETTINGS = {
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
EXTRA: Json = {
    "from": {"stream": "orders"}, "group_by": ["n"], "aggregate": {"m": "count(*)"}, "start": "latest",
}  # fmt: skip


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


def change_something(client: Client, number: int) -> None:
    """Restart a query, and let another one come and go."""
    with suppress(Unreachable, ServiceError):
        client.call("POST", f"/v1/queries/{QUERIES[number % len(QUERIES)]['name']}/restart")
        if number > 1:
            client.call("DELETE", f"/v1/queries/extra{number - 2}")
        client.queries.put({**EXTRA, "name": f"extra{number}", "into": {"table": f"extra{number}"}})


def test_nothing_keeps_growing(running: Service) -> None:
    samples = Samples()
    with Client(running.url, timeout=60) as client:
        client.stream("orders").register({"key": ["k"], "columns": COLUMNS, "event_time": "at", "connector": LOG})
        prices = {
            "key": ["k"],
            "columns": COLUMNS,
            "event_time": "at",
            "connector": LOG,
            "versioned": {"history_retention": "30s"},
        }
        client.table("prices").register(prices)
        for query in QUERIES:
            client.queries.put({**query, "tasks": 2})
        for query in QUERIES:
            until(f"{query['name']} runs", lambda name=query["name"]: client.query(name).status()["state"] == "running", START_S)
        dsn = running.driver().environ()["SLACKWATER_DATABASE_URL"]
        load = Load(running.url)
        load.start()
        begun = changed = time.monotonic()
        number = 0
        while time.monotonic() - begun < MINUTES * 60:
            time.sleep(SAMPLE_S)
            samples.add(of_service(running, dsn))
            if time.monotonic() - changed > LIFECYCLE_S:
                changed = time.monotonic()
                change_something(client, number)
                number += 1
                with psycopg.connect(dsn, autocommit=True) as connection:
                    connection.execute(_AGE_KEYS)
        load.stop()
        lags = {query["name"]: _lag(client, query["name"]) for query in QUERIES}
    trends = samples.trends()
    print(f"{MINUTES:g} minutes, {load.sent:,} orders, {number} restarts, as many queries made and deleted; lag {lags}")
    print(f"{'after the warm-up':<28}{'level':>12}{'growth':>12}{'allowed':>12}")
    print("\n".join(map(str, trends)))
    assert load.sent > MINUTES * 60 * 20
    assert [str(trend) for trend in trends if trend.is_growing] == []


def _lag(client: Client, query: str) -> int:
    return sum(partition["lag"] for feed in client.query(query).status()["progress"] for partition in feed["partitions"])

"""Followers that lose their connection at random while the driver and the API are killed: no gap, no repeat, the table at the end."""

from __future__ import annotations

import json
import random
import secrets
import threading
import time
from collections import Counter
from functools import partial
from itertools import islice

import pytest

from app.client import Client, Event, Json
from tests.faults.service import Feeder, Service, service, until

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.timeout(420)]

BODIES, PER_BODY = 60, 100
KEYS = [f"key-{number}" for number in range(40)]
QUIET_S = 90.0
STREAM: Json = {
    "key": ["key"],
    "columns": {"key": "string", "id": "bigint", "value": "bigint", "at": "bigint"},
    "event_time": "at",
    "connector": {"type": "log", "partitions": 2},
}
TOTALS: Json = {
    "name": "totals",
    "from": {"stream": "events"},
    "group_by": ["key"],
    "aggregate": {"n": "count(*)", "total": "sum(value)"},
    "into": {"table": "totals"},
    "tasks": 2,
}
COPIES: Json = {
    "name": "copies",
    "from": {"stream": "events"},
    "select": {"id": "id", "key": "key"},
    "into": {"stream": "copies"},
    "tasks": 2,
}


class Follower(threading.Thread):
    """Follows over the client that comes back by itself, and is thrown off now and then besides."""

    def __init__(self, url: str, kind: str, name: str, start_at: str, seed: int) -> None:
        super().__init__(daemon=True)
        self._client = Client(url)
        self._what = kind, name, start_at
        self._chance = random.Random(seed)
        self._is_over = threading.Event()
        self.events: list[Event] = []

    def close(self) -> None:
        """End, at the latest when the connection that is open now does."""
        self._is_over.set()
        self._client.close()

    def run(self) -> None:
        cursor = None
        try:
            while True:
                for event in islice(self._client.changes(*self._what, cursor=cursor), self._chance.randrange(1, 300)):
                    self.events.append(event)
                    cursor = event.id
        except RuntimeError:
            if not self._is_over.is_set():
                raise

    def changes(self) -> list[Json]:
        return [event.data for event in list(self.events) if event.kind == "change"]

    def table(self) -> dict[str, tuple[int, int]]:
        rows = [event.data["row"] for event in list(self.events) if event.kind in ("snapshot", "change")]
        return {row["key"]: (row["n"], row["total"]) for row in rows}


def launched(client: Client, above: int) -> bool:
    status = client.status("totals")
    return bool(status["state"] == "running" and status["epoch"] > above)


def kill_one_after_the_other(running: Service, client: Client, chance: random.Random) -> None:
    for kill in (running.kill_driver, running.kill_api, running.kill_driver):
        epoch = client.status("totals")["epoch"]
        # The moment is what is random here; nothing waits for it.
        time.sleep(chance.uniform(0, 6))
        kill()
        until("the query runs again", partial(launched, client, epoch if kill == running.kill_driver else 0), QUIET_S)


def test_followers_miss_nothing_while_the_driver_and_the_api_are_killed() -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    sent: list[Json] = [
        {"key": chance.choice(KEYS), "id": number, "value": number % 97, "at": 1_700_000_000_000 + number}
        for number in range(BODIES * PER_BODY)
    ]
    lines = [json.dumps(record) for record in sent]
    bodies = [
        ("streams", "events", "\n".join(lines[first : first + PER_BODY]).encode()) for first in range(0, len(lines), PER_BODY)
    ]
    with service() as running, Client(running.url, timeout=20) as client:
        client.register("streams", "events", STREAM)
        client.put_query(TOTALS)
        client.put_query(COPIES)
        until("the query runs", partial(launched, client, 0), QUIET_S)
        feeder = Feeder(running.url, bodies, pause_s=0.5)
        feeder.start()
        rows = Follower(running.url, "tables", "totals", "snapshot", seed)
        records = Follower(running.url, "streams", "copies", "earliest", seed + 1)
        for follower in (rows, records):
            follower.start()
        kill_one_after_the_other(running, client, chance)
        until("everything was acknowledged", lambda: feeder.is_done, QUIET_S)
        expected: dict[str, tuple[int, int]] = {}
        for record in sent:
            n, total = expected.get(record["key"], (0, 0))
            expected[record["key"]] = n + 1, total + record["value"]
        until("the follower's table is complete", lambda: rows.table() == expected, QUIET_S)
        until("the follower's stream is complete", lambda: len(records.changes()) >= len(sent), QUIET_S)
        assert Counter(change["row"]["id"] for change in records.changes()) == Counter(range(len(sent)))
        offsets = [change["offset"] for change in rows.changes()]
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
        assert {row["key"]: (row["n"], row["total"]) for row in client.rows("totals")} == expected
        for follower in (rows, records):
            follower.close()
        print(
            f"{len(offsets)} changes, {len(sent)} records; epochs {[client.status(name)['epoch'] for name in ('totals', 'copies')]}"
        )

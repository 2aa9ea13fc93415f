"""kill -9 of the driver, of the API, of everything, at random moments: nothing is lost and nothing counts twice.

The oracle is a batch computation over what was sent; the auditor reads the public interface alone. The disorder of the input
stays within the grace periods, so that every result is the same however the records were cut into batches.
"""

from __future__ import annotations

import json
import random
import secrets
import time
from collections import Counter, defaultdict
from datetime import datetime
from functools import partial

import pytest

from app.client import Client, Json
from tests.faults.service import Feeder, Service, service, until

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.timeout(420)]

START_MS = 1_700_000_000_000
KEYS = [f"key-{number}" for number in range(6)]
BODIES, PER_BODY = 120, 200
STEP_MS = 20
DISORDER_MS = 3_000
WINDOW_MS = 10_000
FLUSH_MS = START_MS + BODIES * PER_BODY * STEP_MS + 3_600_000
QUIET_S = 90.0

STREAM: Json = {
    "key": ["key"],
    "columns": {"key": "string", "id": "bigint", "value": "bigint", "at": "bigint"},
    "event_time": "at",
    "connector": {"type": "log", "partitions": 2},
}
COUNTS: Json = {
    "name": "counts",
    "from": {"stream": "events"},
    "group_by": ["key"],
    "window": {"type": "tumbling", "size": "10s", "grace": "10s"},
    "aggregate": {"n": "count(*)", "total": "sum(value)"},
    "suppress": {"mode": "until_window_closes"},
    "into": {"table": "counts"},
    "tasks": 2,
}
COPIES: Json = {
    "name": "copies",
    "from": {"stream": "events"},
    "where": "value % 2 = 0",
    "select": {"id": "id", "key": "key", "value": "value"},
    "into": {"stream": "copies"},
    "tasks": 2,
}


def records(chance: random.Random) -> list[Json]:
    """Rising event times with bounded disorder, then one record per key that closes every window before it."""
    made = [
        {
            "key": chance.choice(KEYS),
            "id": number,
            "value": number % 97,
            "at": START_MS + number * STEP_MS - chance.randrange(DISORDER_MS),
        }
        for number in range(BODIES * PER_BODY)
    ]
    return made + [{"key": key, "id": 1_000_000 + number, "value": 1, "at": FLUSH_MS} for number, key in enumerate(KEYS)]


def expected_counts(sent: list[Json]) -> dict[tuple[str, int], tuple[int, int]]:
    windows: dict[tuple[str, int], list[int]] = defaultdict(list)
    for record in sent:
        windows[record["key"], record["at"] // WINDOW_MS * WINDOW_MS].append(record["value"])
    return {
        window: (len(values), sum(values)) for window, values in windows.items() if window[1] < FLUSH_MS // WINDOW_MS * WINDOW_MS
    }


def found_counts(client: Client) -> dict[tuple[str, int], tuple[int, int]]:
    rows = list(client.rows("counts"))
    found = {(row["key"], milliseconds(row["window_start"])): (row["n"], row["total"]) for row in rows}
    assert len(found) == len(rows), "a window is there twice"
    return found


def milliseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def found_copies(client: Client) -> Counter[int]:
    partitions = client.call("GET", "/v1/streams/copies")["partitions"]
    return Counter(record["id"] for part in partitions for record in client.records("copies", partition=part["partition"]))


def runs_again(client: Client, above: dict[str, int]) -> bool:
    """Whether both queries run in a later launch than before."""
    statuses = [client.status(name) for name in ("counts", "copies")]
    return all(status["state"] == "running" and status["epoch"] > above[status["name"]] for status in statuses)


def kill_at_random(running: Service, client: Client, chance: random.Random) -> None:
    """Kill each part once, in any order, each time some moments after both queries ran again."""
    kills = [running.kill_driver, running.kill_api, running.kill_everything]
    chance.shuffle(kills)
    above = {"counts": 0, "copies": 0}
    for kill in kills:
        until("both queries run", partial(runs_again, client, above), QUIET_S)
        above = {name: client.status(name)["epoch"] for name in above}
        # The moment is what is random here; nothing waits for it.
        time.sleep(chance.uniform(0, 8))
        kill()
    until("both queries run after the last kill", partial(runs_again, client, above), QUIET_S)


def test_results_are_exact_after_kill_9_of_the_driver_the_api_and_everything() -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    sent = records(chance)
    lines = [json.dumps(record) for record in sent]
    bodies = ["\n".join(lines[first : first + PER_BODY]).encode() for first in range(0, len(lines), PER_BODY)]
    with service() as running, Client(running.url, timeout=20) as client:
        client.register("streams", "events", STREAM)
        client.put_query(COUNTS)
        client.put_query(COPIES)
        feeder = Feeder(running.url, "events", bodies, pause_s=0.4)
        feeder.start()
        kill_at_random(running, client, chance)
        until("everything was acknowledged", lambda: feeder.acknowledged == len(bodies), QUIET_S)
        windows = expected_counts(sent)
        copies = Counter(record["id"] for record in sent if record["value"] % 2 == 0)
        until("every window is final", lambda: len(found_counts(client)) >= len(windows), QUIET_S)
        until("every copy is there", lambda: found_copies(client).total() >= copies.total(), QUIET_S)
        assert found_counts(client) == windows
        assert found_copies(client) == copies
        print(f"{feeder.repeated} appends repeated; epochs {[client.status(name)['epoch'] for name in ('counts', 'copies')]}")

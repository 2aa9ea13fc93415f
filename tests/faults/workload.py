"""Records, two queries over them and what these must give: windows with state, and copies without.

The oracle is a batch computation over what was sent; what is found is read from the public interface alone. The disorder of the
input stays within the grace periods, so that every result is the same however the records were cut into batches.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from datetime import datetime

from slackwater import Client, Json

from tests.faults.service import Body

START_MS = 1_700_000_000_000
KEYS = [f"key-{number}" for number in range(6)]
BODIES, PER_BODY = 120, 200
STEP_MS = 20
DISORDER_MS = 3_000
WINDOW_MS = 10_000
FLUSH_MS = START_MS + BODIES * PER_BODY * STEP_MS + 3_600_000
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


def found_counts(client: Client, table: str = "counts") -> dict[tuple[str, int], tuple[int, int]]:
    rows = list(client.table(table).each_row())
    found = {(row["key"], milliseconds(row["window_start"])): (row["n"], row["total"]) for row in rows}
    assert len(found) == len(rows), "a window is there twice"
    return found


def milliseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def found_copies(client: Client) -> Counter[int]:
    partitions = client.call("GET", "/v1/streams/copies")["partitions"]
    return Counter(record["id"] for part in partitions for record in client.stream("copies").records(partition=part["partition"]))


def bodies(sent: list[Json]) -> list[Body]:
    """Cut the records into requests."""
    lines = [json.dumps(record) for record in sent]
    return [
        ("streams", "events", "\n".join(lines[first : first + PER_BODY]).encode()) for first in range(0, len(lines), PER_BODY)
    ]

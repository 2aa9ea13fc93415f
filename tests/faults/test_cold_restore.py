"""A service that was stopped with much inside it, and goes on from its checkpoints and its database alone, in another directory."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from functools import partial
from itertools import islice

import pytest
from slackwater import Client, Json

from tests.faults.audited import QUERIES, SOURCES, Oracle, Script, query
from tests.faults.auditor import audit
from tests.faults.chaos import has_read
from tests.faults.service import Body, Service, seeded, service, until

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1_500)]

ROUNDS, PER_ROUND = 60, 1_000
BUFFERED = 50_000
PATIENCE_S = 300.0
LIMIT_S = 20
AUDITED = ("regions", "sessions", "counts")
HELD: Json = {**QUERIES["joined"], "name": "held", "tasks": 2, "into": {"stream": "held"}}
HELD["joins"] = [{**HELD["joins"][0], "grace": "1h", "late": "join"}]
TIMED: Json = {
    **QUERIES["totals"],
    "name": "timed",
    "tasks": 2,
    "suppress": {"mode": "until_wall_clock_time_limit", "limit": f"{LIMIT_S}s"},
    "into": {"table": "timed"},
}
NAMES = (*AUDITED, "held", "timed")

Ends = dict[tuple[str, int], int]


def append(client: Client, bodies: Iterator[Body], ends: Ends) -> None:
    for kind, name, records in bodies:
        for part in client.relation(kind, name).append(records).offsets:
            ends[name, part["partition"]] = part["last_offset"] + 1


def timed(client: Client) -> dict[str, tuple[int, int]]:
    return {row["key"]: (row["n"], row["total"]) for row in client.table("timed").each_row()}


def move(running: Service) -> None:
    """Take database and checkpoints to a new directory; nothing else of the old one is left."""
    before = running.data_dir
    running.data_dir = before.with_name("restored")
    running.data_dir.mkdir()
    for name in ("postgres", "checkpoints"):
        (before / name).rename(running.data_dir / name)
    shutil.rmtree(before)


def assert_holds_as_undisturbed(client: Client, oracle: Oracle) -> None:
    """Each order once, with its version, by event time per task, then arrival."""
    partitions = client.call("GET", "/v1/streams/held")["partitions"]
    records = [record for part in partitions for record in client.stream("held").records(partition=part["partition"])]
    wanted = [order for order in oracle.orders.values() if order.item is not None and order.at < oracle.flush_ms]
    assert len(records) == len(wanted)
    assert {record["id"]: record["version"] for record in records} == {order.id: oracle.as_of(order)[0] for order in wanted}
    for part in partitions:
        by_item: dict[str, list[int]] = {}
        for record in client.stream("held").records(partition=part["partition"]):
            by_item.setdefault(record["item"], []).append(record["at"])
        assert all(times == sorted(times) for times in by_item.values())


def test_buffers_windows_sessions_and_timers_go_on_from_checkpoint_and_database_alone() -> None:
    script = Script(random.Random(seeded()), per_round=PER_ROUND)
    bodies, ends = script.bodies(), Ends()
    with service() as running, Client(running.url, timeout=60) as client:
        for name, (kind, definition) in SOURCES.items():
            client.relation(kind, name).register(definition)
        for definition in (*map(query, AUDITED), HELD, TIMED):
            client.queries.put(definition)
        append(client, islice(bodies, 2 * ROUNDS + 1), ends)
        until("everything was read", partial(has_read, client, NAMES, ends), PATIENCE_S)
        append(client, islice(bodies, 2), ends)
        fed_at = time.monotonic()
        until("the rest was read", partial(has_read, client, NAMES, ends), PATIENCE_S)
        buffered = sum(client.query("held").status()["buffered"].values())
        assert buffered >= BUFFERED
        running.stop()
        is_down_before_due = time.monotonic() - fed_at < LIMIT_S
        move(running)
        # What was told to wait becomes due while nothing runs.
        time.sleep(max(0.0, LIMIT_S - (time.monotonic() - fed_at)))
        begun = time.monotonic()
        running.start()
        totals = Oracle(script).totals()
        until("what became due while down is shown", lambda: timed(client) == totals, PATIENCE_S)
        print(f"{buffered} rows buffered, restored after {time.monotonic() - begun:.1f} s; down before due: {is_down_before_due}")
        script.is_over = True
        append(client, bodies, ends)
        until("the end was read", partial(has_read, client, NAMES, ends), PATIENCE_S)
        oracle = Oracle(script)
        found = audit(client, oracle, AUDITED)
        print(found)
        assert found.is_clean, str(found)
        assert_holds_as_undisturbed(client, oracle)

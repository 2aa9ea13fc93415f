"""T1 on the real service: what is credited in a window is what is debited there, and the number of tasks shows nowhere.

Every transfer is counted twice, by the account that is debited and by the one that is credited, in tasks that the accounts' hashes choose.
Some come later than the grace of the windows: each is late in both queries or in none.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from functools import partial

import pytest
from slackwater import Client, Json

from app.db.embedded_postgres import EmbeddedPostgres
from tests.faults.scene import SETTINGS, Scene, sizes
from tests.faults.service import Driverless, seeded, service, service_of, until

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.slow]

START_MS = 1_700_000_000_000
STEP_MS = 10
DISORDER_MS, LATE_MS, LATE_SHARE = 3_000, 9_000, 0.02
TRANSFERS = 6_000
PER_REQUEST = 500
ACCOUNTS = [f"account-{number}" for number in range(40)]
SIDES = ("credit", "debit")
LONGEST_S = 240.0

SOURCE: Json = {
    "key": ["id"],
    "columns": {"id": "bigint", "debit": "string", "credit": "string", "amount": "bigint", "at": "bigint"},
    "event_time": "at",
    "connector": {"type": "log", "partitions": 4},
}


def query(side: str, tasks: int, name: str | None = None) -> Json:
    """Return the query that sums one side of the transfers."""
    return {
        "name": name or f"{side}_{tasks}",
        "from": {"stream": "transfers", "as": "t"},
        "group_by": [f"t.{side}"],
        "window": {"type": "tumbling", "size": "5s", "grace": f"{DISORDER_MS}ms"},
        "aggregate": {"n": "count(*)", "total": "sum(t.amount)"},
        "suppress": {"mode": "until_window_closes"},
        "into": {"table": name or f"{side}_{tasks}"},
        "tasks": tasks,
    }


def transfers(chance: random.Random) -> list[Json]:
    """Return transfers in the order of arrival; the last one, an hour later, closes every window but its own."""
    return [_transfer(number, chance) for number in range(TRANSFERS)] + [
        {"id": -1, "debit": ACCOUNTS[0], "credit": ACCOUNTS[1], "amount": 1, "at": START_MS + TRANSFERS * STEP_MS + 3_600_000}
    ]


def _transfer(number: int, chance: random.Random) -> Json:
    behind_ms = chance.randrange(DISORDER_MS, LATE_MS) if chance.random() < LATE_SHARE else chance.randrange(DISORDER_MS)
    debit, credit = chance.sample(ACCOUNTS, 2)
    return {"id": number, "debit": debit, "credit": credit, "amount": number % 97, "at": START_MS + number * STEP_MS - behind_ms}


def store(client: Client, made: list[Json]) -> None:
    """Register the stream and append everything, before any query begins."""
    client.relation("streams", "transfers").register(SOURCE)
    for first in range(0, len(made), PER_REQUEST):
        client.relation("streams", "transfers").append("\n".join(map(json.dumps, made[first : first + PER_REQUEST])).encode())


def is_read(client: Client, names: list[str]) -> bool:
    statuses = [client.query(name).status() for name in names]
    assert all(status["state"] != "failed" for status in statuses), statuses
    lags = [part["lag"] for status in statuses for feed in status["progress"] for part in feed["partitions"]]
    return bool(lags) and not any(lags)


def finals(client: Client, name: str, side: str) -> list[str]:
    """Return the windows of a result, as texts in an order of their own."""
    rows = client.table(name).each_row()
    return sorted(json.dumps([row["window_start"], row[side], row["n"], row["total"]]) for row in rows)


def totals(client: Client, name: str) -> Counter[str]:
    """Return what all accounts together have, by window."""
    found: Counter[str] = Counter()
    for row in client.table(name).each_row():
        found[row["window_start"]] += row["total"]
    return found


def late(client: Client, name: str) -> list[str]:
    """Return the late records as they are kept, in their order."""
    told = ("input", "reason", "event_time", "stream_time", "offset", "record")
    return [json.dumps([each.get(part) for part in told]) for each in client.query(name).late_records()]


def check(client: Client, names: dict[str, list[str]]) -> None:
    """Check that credits equal debits, and that every other query of a side gives what the first one does."""
    for credited, debited in zip(*(names[side] for side in SIDES), strict=True):
        assert totals(client, credited) == totals(client, debited)
    for side in SIDES:
        first, *others = names[side]
        assert (counted := sum(json.loads(row)[2] for row in finals(client, first, side))) > TRANSFERS * 0.9
        assert counted + len(late(client, first)) == TRANSFERS
        assert late(client, first)
        for other in others:
            assert finals(client, other, side) == finals(client, first, side)
            assert late(client, other) == late(client, first)


@pytest.mark.timeout(400)
def test_final_credits_equal_final_debits_and_four_tasks_give_what_one_gives() -> None:
    with service() as running, Client(running.url, timeout=30) as client:
        store(client, transfers(random.Random(seeded())))
        names = {side: [f"{side}_{tasks}" for tasks in (1, 4)] for side in SIDES}
        for side in SIDES:
            for tasks in (1, 4):
                client.queries.put(query(side, tasks))
        until("everything was read", partial(is_read, client, [*names["credit"], *names["debit"]]), LONGEST_S)
        check(client, names)


@pytest.mark.timeout(900)
def test_credits_equal_debits_while_driver_and_workers_are_killed_and_tasks_change() -> None:
    chance = random.Random(seeded())
    with service_of(Driverless, SETTINGS) as running, Client(running.url, timeout=30) as client:
        store(client, transfers(chance))
        names = {side: [f"{side}_1", f"{side}_moved"] for side in SIDES}
        moved = [names[side][1] for side in SIDES]
        for side in SIDES:
            client.queries.put(query(side, 1))
            client.queries.put(query(side, 1, f"{side}_moved"))
        every = [*names["credit"], *names["debit"]]
        scene = Scene(running, client, EmbeddedPostgres(running.data_dir / "postgres").start(), every, LONGEST_S)
        try:
            for tasks in (4, 2, 3):
                scene.await_reading(moved)
                for side in SIDES:
                    client.queries.put(query(side, tasks, f"{side}_moved"))
                scene.await_reading(chance.sample(moved, 1))
                chance.choice([scene.kill_driver, scene.kill_workers])()
            scene.kill_driver()
            scene.await_all()
            check(client, names)
        finally:
            print("\n".join(sizes(client, every)))
            scene.end()

"""Rewinding under load, with everything killed in the middle of it: the results are those of queries that never were behind the commit."""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest
from slackwater import Client, Json, ServiceError, Unreachable

from tests.faults.service import Feeder, Service, service, until
from tests.spark.test_forks import ORDERS, PRICED, PRICES, WORTH, assert_equal, batches, is_read, late, named

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1_500)]

SECONDS = 400.0
"""A driver that was killed is back after 15 s, on a machine with much else to do after some minutes."""

FINALS: Json = {**WORTH, "into": {"table": "worth"}}
TOTALS: Json = {
    "name": "totals",
    "from": {"stream": "orders"},
    "group_by": ["k"],
    "aggregate": {"orders": "count(*)", "total": "sum(n)"},
    "into": {"table": "totals", "versioned": {"history_retention": "20s"}},
    "tasks": 2,
}
QUERIES = (PRICED, FINALS, TOTALS)
"""A join into a stream, final windows by another key behind a join, and a table whose rows change and keep versions."""


def is_paused(client: Client, name: str) -> bool:
    return bool(client.query(name).status()["state"] == "paused")


def can_go_back(client: Client, name: str, batches: int) -> bool:
    """Whether a commit is retained that lies so far behind the newest one."""
    listed = client.query(name).restore_points()
    return any(listed["newest"]["batch_id"] - each["batch_id"] >= batches for each in listed["items"])


def rewind_while(client: Client, url: str, name: str, batch_id: int, strike: Callable[[], None]) -> None:
    """Ask for a rewind, and let something strike in a moment of it; the query is then where it was, or there."""
    before = client.query(name).status()["batch_id"]

    def ask() -> None:
        with Client(url, timeout=60) as other, suppress(Unreachable, ServiceError):
            other.query(name).rewind(batch_id)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    time.sleep(random.uniform(0, 0.12))
    strike()
    asking.join(60)
    until("it answers again", lambda: client.query(name).status(), SECONDS)
    found = client.query(name).status()["batch_id"]
    print(f"{name}: {before}, asked for {batch_id}, found {found}")
    assert found in (before, batch_id)
    if found != batch_id:
        until("it is at rest", partial(is_paused, client, name), SECONDS)
        client.query(name).rewind(batch_id)


def back_and_on(client: Client, running: Service, chance: random.Random, strikes: list[Callable[[], None]], batches: int) -> None:
    """Put every query back to some commit of its own, and let it go on; before that one lies so many batches behind."""
    for definition, strike in zip(QUERIES, strikes, strict=True):
        name = definition["name"]
        until("it has something to go back to", partial(can_go_back, client, name, batches), SECONDS)
        client.call("PUT", f"/v1/queries/{name}/desired-state", {"state": "paused"})
        until("it is paused", partial(is_paused, client, name), SECONDS)
        possible = [each["batch_id"] for each in client.query(name).restore_points()["items"] if each["can_rewind"]]
        assert possible
        rewind_while(client, running.url, name, chance.choice(possible), strike)
        client.call("PUT", f"/v1/queries/{name}/desired-state", {"state": "running"})


def test_rewound_queries_give_what_queries_give_that_ran_from_the_beginning() -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with service({"SLACKWATER_RETAINED_COMMITS_EVERY": "10s"}) as running, Client(running.url, timeout=60) as client:
        client.stream("orders").register(ORDERS)
        client.table("prices").register(PRICES)
        for definition in QUERIES:
            client.queries.put(definition)
        feeder = Feeder(running.url, batches(chance), pause_s=0.5)
        feeder.start()
        back_and_on(client, running, chance, [running.kill_backend, running.kill_everything, lambda: None], 4)
        back_and_on(client, running, chance, [lambda: None, lambda: None, running.kill_driver], 0)
        until("everything was acknowledged", lambda: feeder.is_done, SECONDS)
        for definition in QUERIES:
            client.queries.put(named(definition, "_anew"))
        for definition in QUERIES:
            for suffix in ("", "_anew"):
                until(f"{definition['name']}{suffix} has read", partial(is_read, client, definition["name"] + suffix), SECONDS)
        assert late(client, "worth_anew"), "some records are late"
        for definition in QUERIES:
            # Of windows the final ones are compared: open ones are not kept here.
            shown = {part: value for part, value in definition.items() if part != "window"}
            assert_equal(client, shown, named(shown, "_anew"))

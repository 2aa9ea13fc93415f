"""Forks of running queries: under load, with the driver killed in the middle, they give what queries give that ran from the beginning."""

from __future__ import annotations

import json
import random
import secrets
from functools import partial

import pytest
from slackwater import Client, Json, ServiceError

from tests.faults.service import Body, Feeder, Service, service, until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

SECONDS = 180.0
START_MS = 1_700_000_000_000
COLUMNS = {"k": "string", "n": "bigint", "at": "bigint"}
PRICES: Json = {"key": ["k"], "columns": COLUMNS, "event_time": "at", "versioned": {"history_retention": "1d"}}
ORDERS: Json = {"key": ["k"], "columns": COLUMNS, "event_time": "at", "connector": {"type": "log", "partitions": 1}}
"""One partition: of several, a batch merges what it holds (T2), so what comes live may stand in another order than what is read later."""
PRICED: Json = {
    "name": "priced",
    "from": {"stream": "orders"},
    "joins": [{"table": "prices", "as": "p", "type": "left", "on": "orders.k = p.k", "grace": "5s"}],
    "select": {"k": "orders.k", "n": "orders.n", "price": "p.n"},
    "into": {"stream": "priced"},
    "tasks": 2,
}
WORTH: Json = {
    "name": "worth",
    "from": {"stream": "orders"},
    "joins": [{"table": "prices", "as": "p", "type": "left", "on": "orders.k = p.k", "grace": "5s"}],
    "group_by": ["p.n"],
    "window": {"type": "tumbling", "size": "10s", "grace": "2s"},
    "aggregate": {"orders": "count(*)", "total": "sum(orders.n)"},
    "suppress": {"mode": "until_window_closes"},
    "into": {"table": "worth", "materialize_open": True},
    "tasks": 2,
}
SUMS: Json = {
    "name": "sums",
    "from": {"stream": "priced"},
    "group_by": ["k"],
    "aggregate": {"orders": "count(*)", "total": "sum(price)"},
    "into": {"table": "sums"},
    "tasks": 2,
}
QUERIES = (PRICED, WORTH, SUMS)
"""A join, a join with windows behind it by another key, and a query that reads another one's result."""


def batches(chance: random.Random) -> list[Body]:
    """Return requests: orders of ten keys, some of them out of order, few of them late; a price now and then."""
    found: list[Body] = []
    for step in range(150):
        now = START_MS + step * 1_000
        if step % 3 == 0:
            found.append(("tables", "prices", line(chance, now, chance.randrange(1, 5))))
        orders = [line(chance, now - chance.randrange(30_000 if chance.random() < 0.05 else 3_000), step) for _ in range(20)]
        found.append(("streams", "orders", b"\n".join(orders)))
    end = START_MS + 200_000
    found.append(("tables", "prices", b"\n".join(json.dumps({"k": f"k{key}", "n": 1, "at": end}).encode() for key in range(10))))
    found.append(("streams", "orders", b"\n".join(json.dumps({"k": f"k{key}", "n": 0, "at": end}).encode() for key in range(10))))
    return found


def line(chance: random.Random, at: int, n: int) -> bytes:
    return json.dumps({"k": f"k{chance.randrange(10)}", "n": n, "at": at}).encode()


def is_read(client: Client, name: str) -> bool:
    """Whether a query runs and has read everything."""
    status = client.query(name).status()
    assert status["state"] != "failed", status
    lags = [partition["lag"] for feed in status["progress"] for partition in feed["partitions"]]
    return status["state"] == "running" and bool(lags) and not any(lags)


def has_committed(client: Client, name: str) -> bool:
    return client.query(name).status()["batch_id"] is not None


def is_running(client: Client, name: str) -> bool:
    return bool(client.query(name).status()["state"] == "running")


def named(definition: Json, suffix: str, **changes: object) -> Json:
    """Return a definition under other names."""
    name = definition["name"] + suffix
    kind = "table" if "table" in definition["into"] else "stream"
    return {**definition, "name": name, "into": {**definition["into"], kind: name}, **changes}


def result(client: Client, definition: Json) -> list[Json]:
    """Return what a query has written: rows of a table with its open windows, records of a stream in their order."""
    name = definition["name"]
    if "stream" in definition["into"]:
        return list(client.stream(name).records())
    shown = {"state": "any"} if "window" in definition else {}
    return sorted(client.table(name).each_row(**shown), key=json.dumps)


def late(client: Client, name: str) -> list[str]:
    page = client.call("GET", f"/v1/queries/{name}/late-records", params={"limit": 10_000})
    return sorted(f"{each['reason']} {each['record']}" for each in page["items"])


def start(client: Client) -> None:
    client.stream("orders").register(ORDERS)
    client.table("prices").register(PRICES)
    for definition in QUERIES:
        client.queries.put(definition)


def assert_equal(client: Client, one: Json, other: Json) -> None:
    found, wanted = result(client, one), result(client, other)
    assert found == wanted, f"{one['name']} is not {other['name']}: {len(found)} and {len(wanted)}"
    assert wanted
    assert late(client, one["name"]) == late(client, other["name"])


def fork_all(client: Client, suffix: str) -> None:
    """Fork every query as it is at this moment."""
    for definition in QUERIES:
        answer = client.query(definition["name"]).fork(definition["name"] + suffix)
        assert answer["fork_of"]["batch_id"] is not None
        print(f"{answer['name']} of batch {answer['fork_of']['batch_id']}")


def kill(running: Service, client: Client) -> None:
    epoch = client.query("worth").status()["epoch"]
    running.kill_driver()
    until("it is launched again", lambda: client.query("worth").status()["epoch"] > epoch, SECONDS)


def test_forks_under_load_give_what_queries_give_that_ran_from_the_beginning() -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    sent = batches(random.Random(seed))
    with service() as running, Client(running.url) as client:
        start(client)
        feeder = Feeder(running.url, sent, pause_s=0.3)
        feeder.start()
        for definition in QUERIES:
            until("it has committed", partial(has_committed, client, definition["name"]), SECONDS)
        fork_all(client, "_one")
        kill(running, client)
        for definition in QUERIES:
            until("it runs again", partial(is_running, client, definition["name"]), SECONDS)
        fork_all(client, "_two")
        kill(running, client)
        until("everything was acknowledged", lambda: feeder.is_done, SECONDS)
        suffixes = ("", "_one", "_two", "_anew")
        for definition in QUERIES:
            client.queries.put(named(definition, "_anew"))
        for definition in QUERIES:
            for suffix in suffixes:
                until(f"{definition['name']}{suffix} has read", partial(is_read, client, definition["name"] + suffix), SECONDS)
        assert late(client, "worth_anew"), "some records are late"
        for definition in QUERIES:
            for suffix in suffixes[:-1]:
                assert_equal(client, named(definition, suffix), named(definition, "_anew"))
        swap(client)


def swap(client: Client) -> None:
    """Put an edited fork in the place of its original, and go on."""
    edited = named(SUMS, "_three", select={"k": "k", "orders": "orders", "total": "total", "mean": "total / orders"}, tasks=3)
    answer = client.query("sums").fork("sums_three", definition=edited)
    assert {change["pointer"] for change in answer["changes"]} == {"/select", "/tasks"}
    with pytest.raises(ServiceError, match="relation_in_use"):
        client.query("priced").take_over("priced_one")
    until("the fork has read", partial(is_read, client, "sums_three"), SECONDS)
    client.query("sums").take_over("sums_three")
    client.query("worth").take_over("worth_two")
    more = [{"k": "k1", "n": 7, "at": START_MS + at} for at in (230_000, 240_000)]
    for kind, name in (("streams", "orders"), ("tables", "prices")):
        client.relation(kind, name).append(b"\n".join(json.dumps(each).encode() for each in more))
    for name in ("worth", "worth_anew", "sums", "sums_anew"):
        until(f"{name} has read", partial(is_read, client, name), SECONDS)
    assert_equal(client, WORTH, named(WORTH, "_anew"))
    totals = {row["k"]: (row["orders"], row["total"]) for row in client.table("sums").each_row()}
    assert totals == {row["k"]: (row["orders"], row["total"]) for row in client.table("sums_anew").each_row()}
    assert all(("mean" in row) for row in client.table("sums").each_row())

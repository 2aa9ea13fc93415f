"""Edits that take effect on Spark at once: what a shorter grace lets go, and a new beginning from a time."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial

import pytest
from slackwater import Client, Json

from tests.faults.service import service, until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

SECONDS = 90.0
START_MS = 1_700_000_000_000
COLUMNS = {"k": "string", "n": "bigint", "at": "bigint"}
PRICED: Json = {
    "name": "priced",
    "from": {"stream": "orders"},
    "joins": [{"table": "prices", "as": "p", "type": "left", "on": "orders.k = p.k", "grace": "1h"}],
    "select": {"k": "orders.k", "n": "orders.n", "price": "p.n"},
    "into": {"stream": "priced"},
    "tasks": 2,
}
COUNTS: Json = {
    "name": "counts",
    "from": {"stream": "clicks"},
    "group_by": ["k"],
    "aggregate": {"n": "count(*)", "total": "sum(n)"},
    "into": {"table": "counts"},
    "tasks": 2,
}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with service() as running, Client(running.url) as client:
        yield client


def append(client: Client, kind: str, name: str, records: list[tuple[str, int, int]]) -> None:
    lines = [json.dumps({"k": k, "n": n, "at": START_MS + at}) for k, n, at in records]
    client.relation(kind, name).append("\n".join(lines).encode())


def is_running(client: Client, query: str, epoch: int = 0) -> bool:
    """Whether a launch behind ``epoch`` runs. A new beginning takes an epoch itself, while the old launch still runs."""
    status = client.query(query).status()
    assert status["state"] != "failed", status
    runs = client.call("GET", f"/v1/queries/{query}/runs", params={"limit": 1})["items"]
    return any(run["epoch"] > epoch and run["running_at"] is not None and run["ended_at"] is None for run in runs)


def is_read(client: Client, query: str, epoch: int = 0) -> bool:
    """Whether a launch behind ``epoch`` runs, and everything was read."""
    lags = [partition["lag"] for feed in client.query(query).status()["progress"] for partition in feed["partitions"]]
    return is_running(client, query, epoch) and bool(lags) and not any(lags)


def priced(client: Client) -> list[tuple[int, int | None]]:
    partitions = client.call("GET", "/v1/streams/priced")["partitions"]
    records = [each for part in partitions for each in client.stream("priced").records(partition=part["partition"])]
    return sorted((record["n"], record["price"]) for record in records)


def test_a_shorter_grace_lets_go_at_once_of_what_is_due_and_only_once(client: Client) -> None:
    client.stream("orders").register(
        {"key": ["k"], "columns": COLUMNS, "event_time": "at", "connector": {"type": "log", "partitions": 1}}
    )
    client.table("prices").register(
        {"key": ["k"], "columns": COLUMNS, "event_time": "at", "versioned": {"history_retention": "1d"}}
    )
    client.queries.put(PRICED)
    append(client, "tables", "prices", [("a", 10, 0), ("b", 20, 0), ("a", 11, 30_000)])
    append(client, "streams", "orders", [(k, 100 * (k == "b") + s, s * 1_000) for s in (1, 20, 40, 58, 60) for k in "ab"])
    until("the orders are read", partial(is_read, client, "priced"), SECONDS)
    assert client.query("priced").status()["buffered"] == {"p": 10}
    shorter = {**PRICED, "joins": [{**PRICED["joins"][0], "grace": "10s"}]}
    epoch = client.query("priced").status()["epoch"]
    begun = time.monotonic()
    answer = client.call("PUT", "/v1/queries/priced", shorter, {"flush": "now"})
    assert answer["definition"]["joins"][0]["grace"] == "10s"
    due = [(1, 10), (20, 10), (40, 11), (101, 20), (120, 20), (140, 20)]
    until("what is due is released", lambda: len(priced(client)) >= len(due), SECONDS)
    print(f"let go after {time.monotonic() - begun:.1f} s")
    assert priced(client) == due
    until("it runs under the new grace", partial(is_read, client, "priced", epoch), SECONDS)
    assert client.query("priced").status()["buffered"] == {"p": 4}
    epoch = client.query("priced").status()["epoch"]
    client.call("POST", "/v1/queries/priced/restart")
    until("it was restarted", partial(is_read, client, "priced", epoch), SECONDS)
    append(client, "streams", "orders", [("a", 70, 70_000), ("b", 170, 70_000)])
    due += [(58, 11), (60, 11), (158, 20), (160, 20)]
    until("the rest is released by the records that follow", lambda: len(priced(client)) >= len(due), SECONDS)
    assert priced(client) == sorted(due)


def counted(client: Client) -> dict[str, tuple[int, int]]:
    return {row["k"]: (row["n"], row["total"]) for row in client.table("counts").each_row()}


def assert_counts(client: Client, sent: list[tuple[str, int, int]]) -> None:
    until("the clicks are read", partial(is_read, client, "counts"), SECONDS)
    number, total = Counter[str](), Counter[str]()
    for k, n, _ in sent:
        number[k] += 1
        total[k] += n
    assert counted(client) == {k: (number[k], total[k]) for k in number}


def test_a_new_beginning_reads_from_a_time_and_then_from_the_earliest(client: Client) -> None:
    client.stream("clicks").register(
        {"key": ["k"], "columns": COLUMNS, "event_time": "at", "connector": {"type": "log", "partitions": 2}}
    )
    sent = [("ab"[number % 2], number, number * 1_000) for number in range(100)]
    for first in range(0, len(sent), 7):
        append(client, "streams", "clicks", sent[first : first + 7])
    client.queries.put(COUNTS)
    assert_counts(client, sent)
    since = datetime.fromtimestamp((START_MS + 41_000) / 1000, UTC).isoformat().replace("+00:00", "Z")
    begin_anew(client, since)
    assert_counts(client, sent[41:])
    append(client, "streams", "clicks", more := [("a", 7, 200_000), ("c", 8, 200_000)])
    assert_counts(client, sent[41:] + more)
    begin_anew(client, "earliest")
    assert_counts(client, sent + more)
    begin_anew(client, "latest")
    append(client, "streams", "clicks", more)
    assert_counts(client, more)


def begin_anew(client: Client, begin: str) -> None:
    epoch = client.query("counts").status()["epoch"]
    begun = time.monotonic()
    client.call("PUT", "/v1/queries/counts", COUNTS, {"state": "discard", "from": begin})
    until("it runs anew", partial(is_running, client, "counts", epoch), SECONDS)
    print(f"anew from {begin} after {time.monotonic() - begun:.1f} s")


def test_sources_and_results_get_further_columns_while_queries_go_on(client: Client) -> None:
    source = {"key": ["k"], "columns": COLUMNS, "event_time": "at", "connector": {"type": "log", "partitions": 1}}
    client.stream("visits").register(source)
    totals = {**COUNTS, "name": "totals", "from": {"stream": "visits"}, "into": {"table": "totals"}}
    totals["select"] = {"k": "k", "n": "n"}
    copied = {"name": "copied", "from": {"stream": "visits"}, "into": {"stream": "copied"}, "tasks": 1}
    for query in (totals, copied):
        client.queries.put(query)
    append(client, "streams", "visits", [("a", 1, 1_000), ("b", 2, 2_000)])
    for name in ("totals", "copied"):
        until(f"{name} has read", partial(is_read, client, name), SECONDS)
    epochs = {name: client.query(name).status()["epoch"] for name in ("totals", "copied")}
    client.stream("visits").register({**source, "columns": {"page": "string", **COLUMNS}})
    client.queries.put({**totals, "select": {**totals["select"], "more": "total + 1"}})
    client.stream("visits").append(json.dumps({"k": "a", "n": 4, "at": START_MS + 3_000, "page": "home"}).encode())
    for name, epoch in epochs.items():
        until(f"{name} has read on", partial(is_read, client, name, epoch), SECONDS)
    rows = sorted((row["k"], row["n"], row["more"]) for row in client.table("totals").each_row())
    assert rows == [("a", 2, 6), ("b", 1, None)]
    records = client.stream("copied").records(partition=0)
    assert [(record["k"], record["n"], "page" in record) for record in records] == [
        ("a", 1, False),
        ("b", 2, False),
        ("a", 4, False),
    ]
    epoch = client.query("copied").status()["epoch"]
    client.queries.put({**copied, "select": {"k": "visits.k", "n": "visits.n", "at": "visits.at", "page": "visits.page"}})
    until("it runs with the page", partial(is_running, client, "copied", epoch), SECONDS)
    client.stream("visits").append(json.dumps({"k": "c", "n": 5, "at": START_MS + 4_000, "page": "news"}).encode())
    until("the page is read", lambda: len(list(client.stream("copied").records(partition=0))) == 4, SECONDS)
    assert [record["page"] for record in client.stream("copied").records(partition=0)] == [None, None, None, "news"]

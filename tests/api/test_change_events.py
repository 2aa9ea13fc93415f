"""POST /v1/tables/{name}/records?format=debezium: what Debezium Server's HTTP sink sends, once or more often."""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httpx
import polars as pl
import psycopg
import pytest

from app.appends import append_transaction
from app.appends.append_transaction import AppendItem
from app.appends.change_positions import forget_positions, keyed, newer_alone
from engine.records.canonical import empty_rejects

TABLE = {"key": ["id"], "columns": {"id": "bigint", "name": "string"}, "connector": {"type": "log", "partitions": 1}}
TS = 1_700_000_000_000
Problem = Callable[..., dict[str, Any]]


def event(op: str, lsn: int | None, before: Any = None, after: Any = None, **source: Any) -> dict[str, Any]:
    where = {"connector": "postgresql", "name": "shop", "db": "d", "ts_ms": TS + (lsn or 0), "lsn": lsn} | source
    return {"before": before, "after": after, "source": where, "op": op, "ts_ms": TS + 5_000}


def put(number: int, text: Any, lsn: int | None, op: str = "u", **source: Any) -> dict[str, Any]:
    return event(op, lsn, after={"id": number, "name": text}, **source)


def gone(number: int, lsn: int) -> dict[str, Any]:
    return event("d", lsn, before={"id": number, "name": None})


@pytest.fixture
async def orders(client: httpx.AsyncClient) -> None:
    assert (await client.put("/v1/tables/orders", json=TABLE)).status_code == 201


async def send(client: httpx.AsyncClient, *events: Any, name: str = "orders") -> dict[str, Any]:
    body = events[0] if len(events) == 1 else list(events)
    response = await client.post(f"/v1/tables/{name}/records?format=debezium", json=body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def counts(answer: dict[str, Any]) -> tuple[int, int, int]:
    return answer["appended"], answer["older_count"], answer["rejected_count"]


def log(dsn: str) -> list[tuple[int, int | None]]:
    """Return (rows, newest event time) of the batches."""
    with psycopg.connect(dsn) as connection:
        return connection.execute("SELECT rows, max_ts FROM log.batch ORDER BY base_offset").fetchall()


async def test_a_repeated_request_appends_nothing_and_an_older_change_never_wins(
    client: httpx.AsyncClient, orders: None, dsn: str
) -> None:
    first = [put(1, "a", 10, "c"), put(1, "b", 20), put(2, "x", 15, "c")]  # a transaction that ran beside the other
    assert counts(await send(client, *first)) == (3, 0, 0)
    assert counts(await send(client, *first)) == (0, 3, 0)
    assert counts(await send(client, gone(1, 30))) == (1, 0, 0)
    assert counts(await send(client, put(1, "late", 25))) == (0, 1, 0)
    assert counts(await send(client, put(1, "again", 31, "c"))) == (1, 0, 0)
    assert sum(rows for rows, _ in log(dsn)) == 5


async def test_the_time_of_a_change_is_that_of_the_database(client: httpx.AsyncClient, orders: None, dsn: str) -> None:
    await send(client, put(1, "a", 10))
    assert log(dsn) == [(1, TS + 10)]


async def test_a_changed_key_a_tombstone_and_a_snapshot(client: httpx.AsyncClient, orders: None) -> None:
    moved = event("u", 20, before={"id": 1, "name": "a"}, after={"id": 9, "name": "a"})
    assert counts(await send(client, put(1, "a", 10, "r"), None, moved)) == (3, 0, 0)
    # The first change after a snapshot may stand where the snapshot's rows do; a second snapshot begins later.
    assert counts(await send(client, put(5, "s", 40, "r"), put(5, "t", 40))) == (2, 0, 0)
    assert counts(await send(client, put(5, "s", 40, "r"))) == (0, 1, 0)
    assert counts(await send(client, put(5, "u", 50, "r"))) == (1, 0, 0)


async def test_another_database_begins_anew(client: httpx.AsyncClient, orders: None) -> None:
    await send(client, put(1, "a", 1_000))
    assert counts(await send(client, put(1, "b", 10))) == (0, 1, 0)
    assert counts(await send(client, put(1, "b", 10, name="shop2"))) == (1, 0, 0)


async def test_more_databases_than_one_body_may_hold_are_refused_one_by_one(client: httpx.AsyncClient, orders: None) -> None:
    answer = await send(client, *(put(number, "a", 10, name=f"shop{number}") for number in range(20)))
    assert counts(answer) == (16, 0, 4)
    assert [(each["index"], each["code"]) for each in answer["rejected"]] == [
        (place, "too_many_origins") for place in range(16, 20)
    ]


async def test_names_of_any_length_are_told_apart(client: httpx.AsyncClient, orders: None) -> None:
    long = "".join(chr(0x4E00 + place % 20_000) for place in range(10_000))
    for name in (long + "a", long + "b"):
        assert counts(await send(client, put(1, "a", 10, name=name))) == (1, 0, 0)
        assert counts(await send(client, put(1, "a", 10, name=name))) == (0, 1, 0)


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", "a\0b"), ("db", "\0"), ("connector", "\0"), ("scn", "1\0"), ("change_lsn", "\0"), ("scn", "1" * 4_000)],
)
async def test_a_place_that_cannot_be_kept_is_refused(client: httpx.AsyncClient, orders: None, field: str, value: str) -> None:
    answer = await send(client, put(1, "bad", 10, **{field: value}), put(2, "ok", 10))
    assert (counts(answer), answer["rejected"][0]["code"]) == ((1, 0, 1), "position_not_read")


async def test_processes_whose_bodies_come_in_another_order_do_not_wait_for_each_other(
    client: httpx.AsyncClient, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slowly(*args: Any) -> Any:
        found = await newer_alone(*args)
        await asyncio.sleep(0.3)
        return found

    async def process(number: int, origins: str) -> None:
        accepted = pl.DataFrame({"id": [number], "_offset": [0], "_op": [0]})
        change = pl.DataFrame({"_position": ["1"], "_committed_us": [1], "_is_exact": [True], "_absent": [None], "_table": ["t"]})
        changes = [change.with_columns(_origin=pl.lit(origin)) for origin in origins]
        items = [AppendItem(target, accepted, empty_rejects(), None, b"", 0, keyed(accepted, ["id"], each)) for each in changes]
        async with await psycopg.AsyncConnection.connect(dsn) as connection, connection.cursor() as cursor:
            await append_transaction._newer_alone(cursor, items, [0, 1])

    target: Any = SimpleNamespace(relation_id=uuid.uuid4())
    monkeypatch.setattr(append_transaction, "newer_alone", slowly)
    async with asyncio.timeout(30):
        await asyncio.gather(process(1, "AB"), process(2, "BA"))


async def test_an_insert_that_waited_for_the_key_wins_though_it_is_logged_before_the_delete(
    client: httpx.AsyncClient, orders: None
) -> None:
    """Postgres logs an insert, and lets it wait then for a transaction that has the key."""
    first = [put(7, "T1", 840, "c", ts_ms=TS), event("d", 1048, before={"id": 7, "name": "T1"}, ts_ms=TS)]
    waited = put(7, "T2", 976, "c", ts_ms=TS + 2)
    assert counts(await send(client, *first)) == (2, 0, 0)
    assert counts(await send(client, waited)) == (1, 0, 0)
    assert counts(await send(client, *first, waited)) == (0, 3, 0), "all of it comes again"
    assert counts(await send(client, put(7, "T3", 2000, ts_ms=TS - 5))) == (1, 0, 0), "the clock was put back"


async def test_a_change_that_was_open_during_a_snapshot_wins_over_its_row(client: httpx.AsyncClient, orders: None) -> None:
    opened = put(8, "long", 360, ts_ms=TS + 9)
    assert counts(await send(client, put(8, "old", 632, "r", ts_ms=TS + 5))) == (1, 0, 0)
    assert counts(await send(client, opened)) == (1, 0, 0)
    assert counts(await send(client, opened)) == (0, 1, 0)
    assert counts(await send(client, put(8, "read again", 700, "r", ts_ms=TS + 20), opened)) == (1, 1, 0)
    # A commit between the place of a snapshot and the time at which its rows were read.
    assert counts(await send(client, put(9, "old", 632, "r", ts_ms=TS + 50), put(9, "new", 640, ts_ms=TS + 40))) == (2, 0, 0)


async def test_a_column_that_was_there_and_is_not_any_more_is_refused_until_it_may_lack(
    client: httpx.AsyncClient, orders: None
) -> None:
    def lacking(number: int, lsn: int) -> dict[str, Any]:
        return event("u", lsn, after={"id": number, "title": "renamed"})

    assert counts(await send(client, lacking(1, 10))) == (1, 0, 0), "a column may be declared before the database has it"
    assert counts(await send(client, put(1, None, 20), lacking(2, 30), event("d", 31, before={"id": 2}))) == (2, 0, 1)
    answer = await send(client, lacking(1, 40))
    assert (counts(answer), answer["rejected"][0]["code"]) == ((0, 0, 1), "column_gone")
    assert "absent=name" in answer["rejected"][0]["detail"]
    assert counts(await send(client, lacking(1, 15))) == (0, 1, 0), "an old change that comes again is older, not wrong"
    allowed = await client.post("/v1/tables/orders/records?format=debezium&absent=name", json=lacking(1, 40))
    assert counts(allowed.json()) == (1, 0, 0), "what was refused counts when it comes again"
    assert counts(await send(client, put(1, "back", 50))) == (1, 0, 0)
    other = await send(client, {**lacking(1, 5), "source": {"connector": "postgresql", "name": "other", "db": "d", "lsn": 5}})
    assert counts(other) == (1, 0, 0), "another database never had it"


async def test_rows_of_another_table_do_not_replace_those_with_their_keys(client: httpx.AsyncClient, orders: None) -> None:
    def of(table: str | None, number: int, lsn: int, op: str = "u", schema: str | None = "public") -> dict[str, Any]:
        row = {"id": number, "name": "a"}
        return event(op, lsn, before=row if op == "d" else None, after=None if op == "d" else row, table=table, schema=schema)

    url = "/v1/tables/orders/records?format=debezium"
    assert counts(await send(client, put(1, "says no table", 5))) == (1, 0, 0)
    answer = await send(client, of("orders", 1, 10), of("customers", 1, 20), of("customers", 1, 30, "d"), of("orders", 2, 40))
    assert (counts(answer), {each["code"] for each in answer["rejected"]}) == ((2, 0, 2), {"other_table"})
    assert "'public.customers'" in answer["rejected"][0]["detail"]
    assert counts(await send(client, of("orders", 1, 50, schema="other"))) == (0, 0, 1)
    named = await client.post(
        url + "&source_table=public.orders,public.orders_2026", json=[of("orders_2026", 7, 60), of("x", 1, 70)]
    )
    assert counts(named.json()) == (1, 0, 1)
    assert counts(await send(client, of("orders", 1, 80))) == (1, 0, 0)


async def test_a_column_that_may_lack_is_one_of_the_table(client: httpx.AsyncClient, orders: None, problem: Problem) -> None:
    answer = await client.post("/v1/tables/orders/records?format=debezium&absent=naem", json=put(1, "a", 10))
    assert "naem" in problem(answer, 422, "format_unfit")["detail"]


async def test_rows_of_one_binlog_event_are_told_apart(client: httpx.AsyncClient, orders: None) -> None:
    def at(number: int, name: str, row: int, op: str = "u") -> dict[str, Any]:
        return put(number, name, None, op, connector="mysql", file="bin.000002", pos=7, row=row, ts_ms=TS)

    assert counts(await send(client, at(1, "a", 0), at(1, "b", 1))) == (2, 0, 0)
    assert counts(await send(client, at(1, "a", 0), at(1, "b", 1))) == (0, 2, 0)


async def test_events_that_come_at_once_count_once(client: httpx.AsyncClient, orders: None, dsn: str) -> None:
    answers = await asyncio.gather(*(send(client, put(1, "a", 10)) for _ in range(20)))
    assert sorted(counts(each) for each in answers) == [(0, 1, 0)] * 19 + [(1, 0, 0)]
    assert sum(rows for rows, _ in log(dsn)) == 1


async def test_what_cannot_be_read_is_kept_and_stops_nothing_unless_it_shall(
    client: httpx.AsyncClient, orders: None, problem: Problem
) -> None:
    truncated = event("t", 50)
    answer = await send(client, truncated)
    assert (counts(answer), answer["rejected"][0]["code"]) == ((0, 0, 1), "table_truncated")
    answer = await send(client, {"after": 1}, [], put(3, 7, 60), put(4, "ok", 61))
    assert counts(answer) == (1, 0, 3), answer
    assert (await client.get("/v1/tables/orders/rejects")).json()["items"]
    strict = TABLE | {"on_bad_record": "stop"}
    assert (await client.put("/v1/tables/strict", json=strict)).status_code == 201
    refused = await client.post("/v1/tables/strict/records?format=debezium", json=truncated)
    problem(refused, 422, "records_rejected")


async def test_an_empty_body_is_a_tombstone(client: httpx.AsyncClient, orders: None) -> None:
    answer = await client.post(
        "/v1/tables/orders/records?format=debezium", content=b"", headers={"Content-Type": "application/json"}
    )
    assert (answer.status_code, counts(answer.json())) == (200, (0, 0, 0))


@pytest.mark.parametrize("parameter", ["time_unit=us", "decimals=text"])
async def test_what_is_of_json_is_refused_of_avro(
    client: httpx.AsyncClient, orders: None, problem: Problem, parameter: str
) -> None:
    body = {"type": "registry", "urls": ["http://127.0.0.1:9"]}
    assert (await client.put("/v1/connections/away", json=body)).status_code == 201
    url = f"/v1/tables/orders/records?format=debezium&encoding=avro&registry=away&{parameter}"
    answer = await client.post(url, content=b"\0", headers={"Content-Type": "application/octet-stream"})
    assert parameter.split("=")[0] in problem(answer, 422, "format_unfit")["detail"]


async def test_poison_bodies(client: httpx.AsyncClient, orders: None, problem: Problem) -> None:
    for body in (b"{", b"[" * 100_000, b'{"before": "\xff"}', b"[1"):
        answer = await client.post(
            "/v1/tables/orders/records?format=debezium", content=body, headers={"Content-Type": "application/json"}
        )
        problem(answer, 400, "malformed_json")
    deep = b'{"op": "u", "after": ' + b'{"id": ' * 900 + b"1" + b"}" * 900 + b"}"
    huge = json.dumps(put(1, "x" * 10_000_000, 10)).encode()
    for body, expected in ((deep, (0, 0, 1)), (huge, (1, 0, 0))):
        answer = await client.post(
            "/v1/tables/orders/records?format=debezium", content=body, headers={"Content-Type": "application/json"}
        )
        assert counts(answer.json()) == expected, answer.text[:500]


async def test_what_nobody_means_is_refused_one_by_one_and_the_rest_goes_on(client: httpx.AsyncClient, orders: None) -> None:
    row, of = {"id": 1, "name": "a"}, lambda after: event("u", 20, after=after)
    bad: list[Any] = [
        of({"name": "no key"}), of({"id": None, "name": "null key"}), event("d", 22, before={"name": "no key"}), of({"id": "one", "name": "a"}),
        of([row]), of("id"), event("x", 26, after=row), event("u", 2**70, after=row), of({"id": 2**70, "name": "a"}), of({"id": 1, "name": row}),
        {**of(row), "source": "here"}, {**of(row), "op": ["u"]}, 1, "u",
    ]  # fmt: skip
    good = [put(number, "good", 100 + number) for number in range(len(bad))]
    mixed = [each for pair in zip(bad, good, strict=True) for each in pair]
    for expected in ((len(good), 0, len(bad)), (0, len(good), len(bad))):
        answer = await send(client, *mixed)
        assert counts(answer) == expected, answer["rejected"]
        assert [each["index"] for each in answer["rejected"]] == list(range(0, len(mixed), 2))


async def test_batches_cut_and_sent_again_in_any_order_give_one_table(client: httpx.AsyncClient, orders: None, dsn: str) -> None:
    draw = random.Random(4)
    events = [
        put(draw.randint(1, 5), f"v{lsn}", lsn) if draw.random() < 0.8 else gone(draw.randint(1, 5), lsn) for lsn in range(10, 70)
    ]
    reached = 0
    while reached < len(events):  # as after restarts: from somewhere before, and further than before
        start, reached = draw.randint(0, reached), min(len(events), reached + draw.randint(1, 15))
        await send(client, *events[start:reached], None)
        await send(client, *draw.sample(events[:reached], min(reached, 10)), None)
    assert sum(rows for rows, _ in log(dsn)) == len(events)
    half = json.dumps(events[-3:]).encode()[:-20]
    answer = await client.post(
        "/v1/tables/orders/records?format=debezium", content=half, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 400
    assert sum(rows for rows, _ in log(dsn)) == len(events)


async def test_what_is_forgotten_does_not_let_an_older_change_win(client: httpx.AsyncClient, orders: None, dsn: str) -> None:
    await send(client, put(1, "a", 100), gone(1, 110), put(2, "x", 120))
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE log.change_position SET at = now() - interval '2 hours'")
    await send(client, put(3, "young", 90, "c"))
    with psycopg.connect(dsn, autocommit=True) as connection:
        forget_positions(connection, 3_600_000, step_rows=1)
        assert connection.execute("SELECT position FROM log.change_position").fetchall() == [(f"{90:020}:1:{0:010}",)]
        assert connection.execute("SELECT floor FROM log.change_source").fetchall() == [(f"{120:020}:1:{0:010}",)]
    answer = await send(client, put(1, "late", 105))
    assert (counts(answer), answer["rejected"][0]["code"]) == ((0, 0, 1), "change_forgotten")
    assert counts(await send(client, put(3, "known", 95))) == (1, 0, 0)
    assert counts(await send(client, put(1, "new", 130, "c"))) == (1, 0, 0)


async def test_positions_of_a_deleted_table_go_with_it(client: httpx.AsyncClient, orders: None, dsn: str) -> None:
    await send(client, put(1, "a", 100))
    assert (await client.delete("/v1/tables/orders")).status_code == 204
    assert (await client.put("/v1/tables/orders", json=TABLE)).status_code == 201
    assert counts(await send(client, put(1, "b", 10))) == (1, 0, 0)
    with psycopg.connect(dsn, autocommit=True) as connection:
        forget_positions(connection, 3_600_000)
        assert connection.execute("SELECT count(*) FROM log.change_position").fetchone() == (1,)


async def test_a_failed_append_keeps_no_position(client: httpx.AsyncClient, orders: None, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ALTER TABLE log.batch ADD CONSTRAINT no_more CHECK (rows < 1) NOT VALID")
        try:
            with pytest.raises(psycopg.errors.CheckViolation):
                await client.post("/v1/tables/orders/records?format=debezium", json=put(1, "a", 10))
        finally:
            connection.execute("ALTER TABLE log.batch DROP CONSTRAINT no_more")
    assert counts(await send(client, put(1, "a", 10))) == (1, 0, 0)

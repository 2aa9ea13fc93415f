"""GET …/explain over streams with several writers, and over joins on expressions, from records that are in the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from tests.api.change_writer import ChangeWriter
from tests.api.committed import commit, emitted
from tests.api.conftest import RECORD, STREAM, TABLE, WINDOWS, Problem

AT = 1_357_041_600_000  # 2013-01-01T12:00:00Z
NOON = "2013-01-01T12:00:00Z"
H = 3_600_000


@pytest.fixture(autouse=True)
async def _streams(client: httpx.AsyncClient) -> None:
    for name in ("departures", "web"):
        assert (await client.put(f"/v1/streams/{name}", json=STREAM)).status_code == 201
    assert (await client.put("/v1/tables/weather", json=TABLE)).status_code == 201
    body = {"name": "writer", "from": {"stream": "web"}, "into": {"stream": "from_web", "append_to": "departures"}}
    await create(client, body)


async def create(client: httpx.AsyncClient, body: Mapping[str, Any]) -> None:
    response = await client.post("/v1/queries", json=body)
    assert response.status_code == 201, response.text


def write(dsn: str, *times: int, shift_ms: int = 0, **values: Any) -> None:
    """Let the writer commit records of these times; their column may hold another time."""
    with ChangeWriter(dsn, "writer") as writing:
        writing.commit([("upsert", {**RECORD, "departed_at": 1_000 * (ts + shift_ms), **values}, ts) for ts in times])


async def ask(client: httpx.AsyncClient, query: str = "delays", **params: Any) -> dict[str, Any]:
    asked = params or {"key": "JFK", "at": NOON}
    response = await client.get(f"/v1/queries/{query}/explain", params=asked)
    assert response.status_code == 200, response.text
    return response.json()  # type: ignore[no-any-return]


async def test_a_record_of_a_part_is_found_and_read_when_the_part_is(client: httpx.AsyncClient, dsn: str) -> None:
    await create(client, WINDOWS)
    write(dsn, AT - 5 * H, AT)
    answer = (await ask(client))["answer"]
    assert (answer["code"], answer["place"]) == ("not_read_yet", {"partition": 0, "offset": 1, "part": "from_web"})
    assert "in its part from_web" in answer["sentence"]
    commit(dsn, "delays", [], {"log:from_web": {0: 2}})
    step = (await ask(client))["steps"][0]
    assert (step["code"], step["place"]["part"]) == ("passed", "from_web")


async def test_a_record_of_a_part_is_asked_for_by_its_place(client: httpx.AsyncClient, dsn: str, problem: Problem) -> None:
    await create(client, WINDOWS)
    write(dsn, AT - H, AT)
    found = await ask(client, part="from_web", partition=0, offset=1)
    assert (found["at_ms"], found["answer"]["code"]) == (AT, "not_read_yet")
    absent = await ask(client, partition=0, offset=1)
    assert absent["answer"]["sentence"].startswith("departures has no record at partition 0, offset 1")
    for params, pointer in (
        ({"part": "web", "partition": 0, "offset": 0}, "?part"),
        ({"part": "from_web", "partition": 3, "offset": 0}, "?partition"),
        ({"part": "from_web", "key": "JFK", "at": NOON}, "?part"),
    ):
        problem(await client.get("/v1/queries/delays/explain", params=params), 400, "bad_parameter", pointer)


async def test_the_time_of_a_parts_record_is_the_one_that_its_column_holds(client: httpx.AsyncClient, dsn: str) -> None:
    """The writer's records have the time of what it read; who reads them with the stream takes that of the stream's column (P13)."""
    await create(client, WINDOWS)
    write(dsn, AT - 50 * H, shift_ms=50 * H)
    assert (await ask(client))["answer"]["code"] == "not_read_yet"
    at_writers_time = await ask(client, key="JFK", at=str(AT - 50 * H))
    assert "departures with its parts from_web has no such record" in at_writers_time["steps"][0]["sentence"]


async def test_a_partner_in_a_part_is_found(client: httpx.AsyncClient, dsn: str) -> None:
    met = {
        "name": "met", "from": {"stream": "orders"},
        "joins": [{
            "stream": "departures", "as": "d", "on": "lower(orders.origin) = lower(d.origin) AND orders.flight = d.flight + 1",
            "within": {"before": "1h", "after": "1h", "grace": "1h"},
        }],
        "select": {"origin": "orders.origin", "delay": "d.delay"}, "into": {"stream": "met"},
    }  # fmt: skip
    assert (await client.put("/v1/streams/orders", json=STREAM)).status_code == 201
    await create(client, met)
    order = {**RECORD, "flight": 726, "departed_at": NOON}
    assert (await client.post("/v1/streams/orders/records", json=[order])).status_code == 200
    write(dsn, AT + H // 2, AT + H, origin="jfk")
    write(dsn, AT + H // 4, origin="jfk", flight=9)
    reading = {"log:orders": {0: 9, 1: 9}, "log:from_web": {0: 1}}
    commit(dsn, "met", [(0, task, emitted({"d": AT})) for task in range(4)], reading)
    found = await ask(client, "met", **{"key.origin": "JFK", "at": NOON})
    assert (found["answer"]["code"], found["answer"]["version_ms"]) == ("joined_version", AT + H // 2)
    assert found["answer"]["place"] == {"partition": 0, "offset": 0, "part": "from_web"}
    assert (await client.post("/v1/streams/orders/records", json=[{**order, "flight": 9, "origin": "LGA"}])).status_code == 200
    none = await ask(client, "met", **{"key.origin": "LGA", "at": NOON})
    assert (none["answer"]["code"], none["answer"]["reason"]) == ("buffered_until", "partner")


async def test_a_version_is_looked_up_by_what_an_expression_makes_of_the_record(client: httpx.AsyncClient, dsn: str) -> None:
    joined = {
        "name": "joined", "from": {"stream": "departures"},
        "joins": [{"table": "weather", "as": "w", "type": "left", "on": "upper(departures.origin) = w.origin"}],
        "select": {"origin": "departures.origin", "temp": "w.temp"}, "into": {"stream": "joined"},
    }  # fmt: skip
    await create(client, joined)
    write(dsn, AT, origin="jfk")
    puts = [{"origin": origin, "temp": 1.0, "observed_at": at} for origin, at in (("JFK", "2013-01-01T11:00:00Z"), ("LGA", NOON))]
    assert (await client.post("/v1/tables/weather/records", json=puts)).status_code == 200
    commit(
        dsn, "joined", [(0, task, emitted({"w.table": AT})) for task in range(4)], {"log:from_web": {0: 1}, "log:weather": {0: 9}}
    )
    found = await ask(client, "joined", **{"key.origin": "jfk", "at": NOON})
    assert (found["answer"]["code"], found["answer"]["version_ms"]) == ("joined_version", AT - H)


async def test_a_statement_explains_a_record_of_a_part(client: httpx.AsyncClient, dsn: str) -> None:
    await create(client, WINDOWS)
    write(dsn, AT)
    response = await client.post("/v1/statements", json={"sql": f"EXPLAIN WHY delays KEY ('JFK') AT '{NOON}';"})
    assert "in its part from_web" in response.text
    assert "not_read_yet" in response.text

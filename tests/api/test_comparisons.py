"""POST /v1/comparisons: what carrying many definitions out would do, without doing it."""

from __future__ import annotations

from typing import Any

import httpx
import psycopg
import pytest

from tests.api.conftest import JOIN, RECORD, STREAM, TABLE, WINDOWS

SQL = """
SET 'auto.offset.reset' = 'latest';
CREATE STREAM rides (id STRING KEY, miles INT, ts TIMESTAMP) WITH (KAFKA_TOPIC='rides', VALUE_FORMAT='JSON', TIMESTAMP='ts');
CREATE TABLE totals AS SELECT id, COUNT(*) AS n FROM rides GROUP BY id;
"""


def wanted(kind: str, name: str, definition: dict[str, Any]) -> dict[str, Any]:
    return {"kind": kind, "name": name, "definition": definition}


ALL = [
    wanted("query", "delays", WINDOWS), wanted("query", "joined", JOIN), wanted("stream", "departures", STREAM),
    wanted("table", "weather", TABLE),
]  # fmt: skip


async def compared(client: httpx.AsyncClient, *definitions: dict[str, Any]) -> list[dict[str, Any]]:
    response = await client.post("/v1/comparisons", json={"definitions": list(definitions)})
    assert response.status_code == 200, response.text
    items: list[dict[str, Any]] = response.json()["items"]
    return items


def actions(items: list[dict[str, Any]]) -> dict[str, str | None]:
    return {item["name"]: item["action"] for item in items}


async def test_a_whole_set_is_planned_before_anything_of_it_is_there(client: httpx.AsyncClient, dsn: str) -> None:
    items = await compared(client, *ALL)
    assert actions(items) == dict.fromkeys(("departures", "weather", "delays", "joined"), "create")
    assert [item["index"] for item in items] == [2, 3, 0, 1], "what is depended on comes first"
    assert items[2]["definition"]["tasks"] == 2
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT count(*) FROM slackwater.relation").fetchone() == (0,), "nothing is stored"


async def test_what_is_there_and_equal_is_no_change(client: httpx.AsyncClient, sources: None) -> None:
    for definition in (WINDOWS, JOIN):
        assert (await client.post("/v1/queries", json=definition)).status_code == 201
    items = await compared(client, *ALL)
    assert set(actions(items).values()) == {"no_op"}
    assert [item["changes"] for item in items] == [[]] * 4


async def test_an_edit_in_place_and_one_that_needs_new_state_are_told_apart(client: httpx.AsyncClient, sources: None) -> None:
    await client.post("/v1/queries", json=WINDOWS)
    (wider,) = await compared(client, wanted("query", "delays", {**WINDOWS, "window": {**WINDOWS["window"], "grace": "45m"}}))
    assert (wider["action"], [change["pointer"] for change in wider["changes"]]) == ("in_place", ["/window/grace"])
    (other,) = await compared(client, wanted("query", "delays", {**WINDOWS, "group_by": ["flight"]}))
    assert (other["action"], other["problems"]) == ("needs_new_state", [])
    assert "/group_by" in [change["pointer"].removesuffix("/0") for change in other["changes"]]


async def test_a_wish_that_is_given_and_differs_is_a_change(client: httpx.AsyncClient, sources: None) -> None:
    await client.post("/v1/queries", json=WINDOWS)
    (kept,) = await compared(client, wanted("query", "delays", WINDOWS))
    (paused,) = await compared(client, wanted("query", "delays", {**WINDOWS, "desired_state": "paused"}))
    assert (kept["action"], paused["action"]) == ("no_op", "in_place")
    assert paused["changes"][0]["pointer"] == "/desired_state"


async def test_new_state_of_what_others_read_is_refused_with_their_names(client: httpx.AsyncClient, sources: None) -> None:
    await client.post("/v1/queries", json=JOIN)
    reader = {"name": "hot", "from": {"stream": "joined"}, "where": "temp > 30", "into": {"stream": "hot"}}
    assert (await client.post("/v1/queries", json=reader)).status_code == 201
    changed = {**JOIN, "joins": [{**JOIN["joins"][0], "type": "inner", "grace": None}]}
    (item,) = await compared(client, wanted("query", "joined", changed))
    assert (item["action"], [each["code"] for each in item["problems"]]) == ("needs_new_state", ["relation_in_use"])
    assert "hot" in item["problems"][0]["detail"]


async def test_a_source_s_change_is_planned_and_seen_by_what_reads_it(client: httpx.AsyncClient, sources: None) -> None:
    wider = {**STREAM, "columns": {**STREAM["columns"], "gate": "string"}}
    by_gate = {**WINDOWS, "name": "gates", "group_by": ["gate"], "into": {"table": "gates"}}
    (source, query) = await compared(client, wanted("query", "gates", by_gate), wanted("stream", "departures", wider))
    assert (source["action"], [change["pointer"] for change in source["changes"]]) == ("in_place", ["/columns/gate"])
    assert (query["name"], query["action"]) == ("gates", "create")


async def test_a_change_that_records_forbid_is_refused_with_its_reason(client: httpx.AsyncClient, sources: None) -> None:
    assert (await client.post("/v1/streams/departures/records", json=[RECORD])).status_code == 200
    (item,) = await compared(client, wanted("stream", "departures", {**STREAM, "key": ["flight"]}))
    assert item["action"] is None
    assert {each["code"] for each in item["problems"]} == {"relation_not_empty"}
    (columns,) = await compared(client, wanted("stream", "departures", {**STREAM, "columns": "infer"}))
    assert columns["action"] == "no_op", "what was inferred once stays"


async def test_statements_stand_for_their_definitions_and_see_each_other(client: httpx.AsyncClient) -> None:
    items = await compared(client, {"kind": "sql", "sql": SQL})
    assert [(item["kind"], item["name"], item["action"]) for item in items] == [
        ("stream", "rides", "create"), ("query", "totals", "create"),
    ]  # fmt: skip
    assert items[1]["properties"] == {"auto.offset.reset": "latest"}
    assert items[1]["statement"].startswith("CREATE TABLE totals")
    assert items[1]["definition"]["start"] == "latest"
    carried = await client.post("/v1/statements", json={"sql": SQL})
    assert carried.status_code == 200, carried.text
    assert set(actions(await compared(client, {"kind": "sql", "sql": SQL})).values()) == {"no_op"}
    (_, edited) = await compared(client, {"kind": "sql", "sql": SQL.replace("COUNT(*) AS n", "COUNT(*) AS n, SUM(miles) AS m")})
    assert edited["action"] == "needs_new_state"


async def test_inserts_into_a_stream_are_found_again_in_their_order(client: httpx.AsyncClient) -> None:
    made = "".join(
        f"CREATE STREAM {name} (id STRING KEY, miles INT) WITH (KAFKA_TOPIC='{name}', VALUE_FORMAT='JSON');"
        for name in ("a", "b", "c")
    )
    inserts = "INSERT INTO a SELECT * FROM b; INSERT INTO a SELECT id, miles FROM c;"
    carried = await client.post("/v1/statements", json={"sql": made + inserts})
    assert carried.status_code == 200, carried.text
    items = await compared(client, {"kind": "sql", "sql": made + inserts})
    assert actions(items) == dict.fromkeys(("a", "b", "c", "insert_a", "insert_a_2"), "no_op")


@pytest.mark.parametrize(
    ("definition", "code"),
    [
        (wanted("query", "q", {"from": {"stream": "nowhere"}, "into": {"stream": "q"}}), "unknown_relation"),
        (wanted("query", "q", {"name": "r", "from": {"stream": "departures"}, "into": {"stream": "q"}}), "invalid_value"),
        (wanted("query", "q", {**WINDOWS, "name": "q", "into": {"table": "weather"}}), "name_taken"),
        (wanted("table", "departures", TABLE), "name_taken"),
        (wanted("stream", "new", {"columns": "infer"}), "invalid_value"),
        (wanted("stream", "new", {"columns": {"a": "strnig"}}), "invalid_value"),
        ({"kind": "sql", "sql": "CREATE STREAM"}, "syntax_error"),
        ({"kind": "sql", "sql": "SELECT * FROM weather;"}, "not_a_definition"),
        ({"kind": "sql", "sql": "CREATE TABLE t AS SELECT * FROM nowhere;"}, "unknown_relation"),
    ],
)
async def test_what_would_be_refused_says_why(
    client: httpx.AsyncClient, sources: None, definition: dict[str, Any], code: str
) -> None:
    (item,) = await compared(client, definition)
    assert item["action"] is None
    assert code in {each["code"] for each in item["problems"]}, item["problems"]


@pytest.mark.parametrize(
    "body",
    [{}, {"definitions": []}, {"definitions": [{"kind": "sql"}]}, {"definitions": [{"kind": "query", "name": "q"}]},
     {"definitions": [{"kind": "well", "name": "q", "definition": {}}]}],
)  # fmt: skip
async def test_a_body_of_another_shape_is_refused(client: httpx.AsyncClient, body: dict[str, Any]) -> None:
    response = await client.post("/v1/comparisons", json=body)
    assert response.status_code == 422, response.text
    assert response.json()["errors"][0]["pointer"].startswith("/definitions")


async def test_statements_of_all_texts_together_are_bounded(client: httpx.AsyncClient) -> None:
    texts = [{"kind": "sql", "sql": "DROP STREAM s;" * 501}] * 2
    answer = await client.post("/v1/comparisons", json={"definitions": texts})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_value")
    assert "more than 1,000 definitions and statements" in answer.json()["detail"]


async def test_an_order_that_takes_too_many_rounds_is_refused(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.comparisons.routes.MOST_TRIES", 9)
    chain = [
        wanted("query", f"q{n}", {"from": {"stream": f"q{n - 1}" if n else "s"}, "into": {"stream": f"q{n}"}}) for n in range(3)
    ]
    source = wanted("stream", "s", STREAM)
    items = await compared(client, source, *chain)
    assert set(actions(items).values()) == {"create"}
    answer = await client.post("/v1/comparisons", json={"definitions": [*reversed(chain), source]})
    assert answer.status_code == 422
    assert "send first what others depend on" in answer.json()["detail"]


async def test_long_properties_are_not_answered_with_each_statement(client: httpx.AsyncClient) -> None:
    sql = f"SET 'a' = '{'x' * 20_000}';" + "CREATE STREAM a AS SELECT * FROM nowhere;" * 3
    items = await compared(client, {"kind": "sql", "sql": sql})
    assert "10,000 characters together" in items[-1]["problems"][0]["detail"]
    assert [item["properties"] for item in items] == [{}] * 4

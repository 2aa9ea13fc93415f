"""Many rows: conditions on any column, ranges of keys, order, pages, Arrow."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import psycopg
import pyarrow as pa
import pytest

from tests.api.conftest import Problem

JSON = {"content-type": "application/json"}
PATH = "/v1/tables/scores/rows"
COLUMNS = {
    "team": "string",
    "n": "bigint",
    "score": "double",
    "price": "decimal(12,2)",
    "raw": "bytes",
    "day": "date",
    "at": "timestamp",
    "clock": "time",
    "is_home": "boolean",
    "tags": "map<string,int>",
    "path": "array<struct<x:int,at:timestamp,b:bytes>>",
}
VALUES = (
    (
        "ants",
        1,
        0.5,
        "1.00",
        b"\0",
        "2013-01-01",
        "2013-01-01T00:00:00Z",
        "10:00",
        True,
        '{"a": 1}',
        '[{"x": 1, "at": null, "b": "AP8="}]',
    ),
    ("ants", 2, None, "2.50", b"\1", "2013-01-02", "2013-01-01T00:00:00.25Z", "11:00", False, None, None),
    ("bees", 1, 1.5, "2.51", None, "2013-01-03", "2013-01-02T00:00:00Z", None, None, "{}", "[]"),
    ("wasps, all", 2**60, -3.0, None, b"\xff", None, None, "12:00", True, None, '[{"x": 2, "at": "2013-01-01T00:00:00Z"}]'),
)


@pytest.fixture(autouse=True)
async def scores(client: httpx.AsyncClient, dsn: str) -> None:
    await client.put("/v1/streams/results", json={"key": ["team", "n"], "columns": COLUMNS})
    query = {"name": "scores", "from": {"stream": "results"}, "into": {"table": "scores"}}
    response = await client.post("/v1/queries", json=query)
    assert response.status_code == 201, response.text
    with psycopg.connect(dsn, autocommit=True) as connection:
        for values in VALUES:
            connection.execute(f"INSERT INTO views.scores VALUES ({', '.join(['%s'] * 11)}, 0)", values)


async def found(client: httpx.AsyncClient, **params: Any) -> list[tuple[str, int]]:
    response = await client.get(PATH, params=params)
    assert response.status_code == 200, response.text
    return [(row["team"], row["n"]) for row in response.json()["rows"]]


A1, A2, B1, W = [(team, n) for team, n, *_ in VALUES]


CONDITIONS: list[tuple[dict[str, Any], list[tuple[str, int]]]] = [
    ({"where.team": "bees"}, [B1]),
    ({"where.team.eq": "bees"}, [B1]),
    ({"where.team.ne": "ants"}, [B1, W]),
    ({"where.score.ne": 0.5}, [A2, B1, W]),
    ({"where.score.gt": 0.5}, [B1]),
    ({"where.score.ge": 0.5}, [A1, B1]),
    ({"where.score.ge": 0.5, "where.score.lt": 1.5}, [A1]),
    ({"where.score.le": -3}, [W]),
    ({"where.score.null": "true"}, [A2]),
    ({"where.score.null": "false"}, [A1, B1, W]),
    ({"where.tags.null": "true"}, [A2, W]),
    ({"where.tags": '{"a": 1.0}'}, [A1]),
    ({"where.path": "[]"}, [B1]),
    ({"where.n.in": "2,3"}, [A2]),
    ({"where.n.in": f"[2,{2**60}]"}, [A2, W]),
    ({"where.team.in": '["wasps, all","bees"]'}, [B1, W]),
    ({"where.price": "2.5"}, [A2]),
    ({"where.price": "2.505"}, []),
    ({"where.price.in": "1,2.51"}, [A1, B1]),
    ({"where.raw": "/w=="}, [W]),
    ({"where.raw.in": "AA==,AQ=="}, [A1, A2]),
    ({"where.day.ge": "2013-01-02"}, [A2, B1]),
    ({"where.at.gt": "2013-01-01T00:00:00Z"}, [A2, B1]),
    ({"where.at.in": "1356998400000"}, [A1]),
    ({"where.clock.lt": "12:00"}, [A1, A2]),
    ({"where.is_home": "true"}, [A1, W]),
    ({"where.is_home.in": "true,false"}, [A1, A2, W]),
    ({"key.team": "ants"}, [A1, A2]),
    ({"key.team.gt": "ants"}, [B1, W]),
    ({"key.team.ge": "ants", "key.team.lt": "bees", "key.n.gt": 1}, [A2]),
    ({"order": "desc"}, [W, B1, A2, A1]),
    ({"order": "desc", "limit": 2}, [W, B1]),
]


async def test_conditions_choose_rows(client: httpx.AsyncClient) -> None:
    chosen = [(conditions, await found(client, **conditions)) for conditions, _ in CONDITIONS]
    assert chosen == CONDITIONS


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_pages_keep_conditions_and_order(client: httpx.AsyncClient, order: str) -> None:
    params: dict[str, Any] = {"where.n.ge": 1, "order": order, "limit": 1}
    pages = []
    while True:
        body = (await client.get(PATH, params=params)).json()
        pages.append([(row["team"], row["n"]) for row in body["rows"]])
        if body["next"] is None:
            break
        params["cursor"] = body["next"]
    assert pages == [[A1], [A2], [B1], [W]][:: 1 if order == "asc" else -1]


@pytest.mark.parametrize(
    ("parameter", "value", "word"),
    [
        ("where.is_home.gt", "true", "boolean"),
        ("where.tags", "[]", "map<string,int>"),
        ("where.day", "soon", "a date"),
        ("where.price", "free", "decimal"),
        ("where.price", "1e131073", "decimal"),
        ("where.price", "1e-16384", "decimal"),
        ("where.team.in", r'["\ud800"]', "surrogate"),
        ("where.n.in", ",".join(["1"] * 1001), "at most 1000"),
        ("where.n.in", "[[1]]", "a whole number"),
    ],
)
async def test_a_condition_that_cannot_be_names_column_and_type(
    client: httpx.AsyncClient, problem: Problem, parameter: str, value: str, word: str
) -> None:
    body = problem(await client.get(PATH, params={parameter: value}), 400, "bad_parameter", f"?{parameter}")
    assert word in body["detail"]


async def test_rows_come_as_arrow_in_the_tables_types(client: httpx.AsyncClient) -> None:
    response = await client.get(PATH, params={"limit": 3}, headers={"accept": "application/vnd.apache.arrow.stream"})
    assert response.headers["content-type"] == "application/vnd.apache.arrow.stream"
    table = pa.ipc.open_stream(response.content).read_all()
    assert {field.name: str(field.type) for field in table.schema} == {
        "team": "string",
        "n": "int64",
        "score": "double",
        "price": "decimal128(12, 2)",
        "raw": "binary",
        "day": "date32[day]",
        "at": "timestamp[us, tz=UTC]",
        "clock": "time64[us]",
        "is_home": "bool",
        "tags": "map<string, int32>",
        "path": "list<item: struct<x: int32, at: timestamp[us, tz=UTC], b: binary>>",
    }
    rows = table.to_pylist()
    assert [(row["team"], row["n"]) for row in rows] == [A1, A2, B1]
    first, second = rows[:2]
    assert (str(first["price"]), first["raw"], str(first["day"]), str(first["clock"])) == (
        "1.00",
        b"\0",
        "2013-01-01",
        "10:00:00",
    )
    assert (first["tags"], first["path"]) == ([("a", 1)], [{"x": 1, "at": None, "b": b"\0\xff"}])
    assert (second["at"].isoformat(), second["score"], second["path"]) == ("2013-01-01T00:00:00.250000+00:00", None, None)
    told = pa.ipc.open_stream(response.content).schema.metadata
    assert b'"table":"scores"' in told[b"slackwater"]
    following = await client.get(PATH, params={"limit": 3, "cursor": response.headers["slackwater-next"]})
    assert [row["team"] for row in following.json()["rows"]] == ["wasps, all"]


async def test_no_rows_are_an_empty_arrow_stream(client: httpx.AsyncClient) -> None:
    accept = {"accept": "application/vnd.apache.arrow.stream"}
    response = await client.get(PATH, params={"key.team": "flies"}, headers=accept)
    assert pa.ipc.open_stream(response.content).read_all().num_rows == 0


async def test_many_keys_are_looked_up_in_their_order(client: httpx.AsyncClient) -> None:
    keys = [{"team": "bees", "n": 1}, {"n": "2", "team": "ants"}, {"team": "flies", "n": 1}, {"team": "bees", "n": 1}]
    body = (await client.post(f"{PATH}:lookup", json={"keys": keys})).json()
    assert [(result["found"], result["reason"]) for result in body["results"]] == [
        (True, None), (True, None), (False, "row_not_found"), (True, None),
    ]  # fmt: skip
    assert [result["row"] and (result["row"]["team"], result["row"]["n"]) for result in body["results"]] == [B1, A2, None, B1]
    assert (body["table"], body["stale"], body["as_of_ms"]) == ("scores", True, None)
    lines = await client.post(f"{PATH}:lookup", json={"keys": keys[:2]}, headers={"accept": "application/x-ndjson"})
    assert len(lines.text.splitlines()) == 2
    numbers = await client.post(f"{PATH}:lookup", params={"bigints": "string"}, json={"keys": keys[:1]})
    assert numbers.json()["results"][0]["row"]["n"] == "1"


@pytest.mark.parametrize(
    ("body", "code", "pointer"),
    [
        ({"keys": []}, "invalid_value", "/keys"),
        ({"keys": [{"team": "ants", "n": 1}] * 1001}, "invalid_value", "/keys"),
        ({}, "field_missing", "/keys"),
        ({"keys": [{"team": "ants"}]}, "bad_key", "/keys/0"),
        ({"keys": [{"team": "ants", "n": 1}, {"team": "ants", "n": 1, "m": 2}]}, "bad_key", "/keys/1"),
        ({"keys": [{"team": "ants", "n": "one"}]}, "bad_key", "/keys/0"),
        ({"keys": [{"team": "ants", "n": None}]}, "bad_key", "/keys/0"),
        ({"keys": [{"team": "ants", "n": 1.5}]}, "bad_key", "/keys/0"),
        ({"keys": ["ants"]}, "bad_key", "/keys/0"),
    ],
)
async def test_a_lookup_of_bad_keys_is_refused(
    client: httpx.AsyncClient, problem: Problem, body: dict[str, Any], code: str, pointer: str
) -> None:
    problem(await client.post(f"{PATH}:lookup", content=json.dumps(body), headers=JSON), 422, code, pointer)


async def test_a_lookup_refuses_what_a_table_cannot_answer(client: httpx.AsyncClient, problem: Problem) -> None:
    keys = {"keys": [{"team": "ants", "n": 1}]}
    problem(await client.post(f"{PATH}:lookup", json=keys, params={"as_of": 5}), 409, "table_not_versioned", "?as_of")
    problem(await client.post(f"{PATH}:lookup", json=keys, params={"limit": 5}), 400, "unknown_parameter", "?limit")
    problem(await client.post("/v1/tables/nowhere/rows:lookup", json=keys), 404, "relation_not_found")
    problem(await client.post(f"{PATH}:lookup", content=b"{", headers=JSON), 400, "malformed_json")


@pytest.mark.parametrize("parameter", ["as_of", "as_of_ms", "from", "to"])
async def test_history_needs_a_versioned_table(client: httpx.AsyncClient, problem: Problem, parameter: str) -> None:
    body = problem(await client.get(PATH, params={parameter: 5}), 409, "table_not_versioned")
    assert "into.versioned" in body["detail"]


async def test_a_table_without_windows_has_no_open_ones(client: httpx.AsyncClient, problem: Problem) -> None:
    problem(await client.get(PATH, params={"state": "final"}), 400, "not_windowed")


async def test_a_cursor_of_half_a_surrogate_pair_is_none(client: httpx.AsyncClient, problem: Problem) -> None:
    half = base64.urlsafe_b64encode(rb'["\ud800"]').decode().rstrip("=")
    for path in ("/v1/queries", "/v1/streams", "/v1/tables"):
        problem(await client.get(path, params={"cursor": half}), 400, "bad_cursor", "?cursor")
    changes = PATH.replace("/rows", "/changes")
    begin = (await client.get(changes, params={"from": "latest"})).json()["next"]
    problem(await client.get(changes, params={"cursor": f"{begin}.{half}"}), 400, "bad_cursor", "?cursor")

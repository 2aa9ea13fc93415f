"""Tables whose key is a struct and an array: rows by key, pages in the order of the key, many keys at once."""

from __future__ import annotations

import json
from typing import Any

import httpx
import psycopg
import pytest

PATH = "/v1/tables/seats/rows"
PLACES: list[Any] = [{"row": 1, "letter": None}, {"row": 1, "letter": "a"}, {"row": 2, "letter": "a"}]
TAGS: list[Any] = [[], ["x", None], ["x"]]


@pytest.fixture(autouse=True)
async def seats(client: httpx.AsyncClient, dsn: str) -> None:
    columns = {"place": "struct<row:int,letter:string>", "tags": "array<string>", "n": "int"}
    assert (await client.put("/v1/streams/bookings", json={"key": ["place", "tags"], "columns": columns})).status_code == 201
    query = {"name": "seats", "from": {"stream": "bookings"}, "into": {"table": "seats"}}
    response = await client.post("/v1/queries", json=query)
    assert response.status_code == 201, response.text
    with psycopg.connect(dsn, autocommit=True) as connection:
        for n, (place, tags) in enumerate(zip(PLACES, TAGS, strict=True)):
            connection.execute("INSERT INTO views.seats VALUES (%s, %s, %s, 0)", (json.dumps(place), json.dumps(tags), n))


async def found(client: httpx.AsyncClient, **params: Any) -> list[int]:
    response = await client.get(PATH, params=params)
    assert response.status_code == 200, response.text
    return [row["n"] for row in response.json()["rows"]]


async def test_a_row_is_found_by_its_nested_key(client: httpx.AsyncClient) -> None:
    assert await found(client, **{"key.place": '{"letter": null, "row": 1}'}) == [0]
    assert await found(client, **{"key.place": '{"row": 1}'}) == [0]
    assert await found(client, **{"key.place": json.dumps(PLACES[1]), "key.tags": '["x", null]'}) == [1]
    assert await found(client, **{"key.tags.in": '[["x"], []]'}) == await found(client, **{"key.tags.ne": '["x", null]'})


async def test_pages_go_through_nested_keys_in_their_order(client: httpx.AsyncClient) -> None:
    whole, pages, after = await found(client), [], None
    for _ in PLACES:
        params: dict[str, Any] = {"limit": 1, **({} if after is None else {"cursor": after})}
        body = (await client.get(PATH, params=params)).json()
        pages += [row["n"] for row in body["rows"]]
        after = body["next"]
    assert pages == whole
    assert sorted(whole) == [0, 1, 2]


async def test_many_nested_keys_are_looked_up_at_once(client: httpx.AsyncClient) -> None:
    keys = [{"place": place, "tags": tags} for place, tags in zip(PLACES, TAGS, strict=True)]
    response = await client.post(f"{PATH}:lookup", json={"keys": [*keys, {"place": PLACES[0], "tags": ["y"]}]})
    assert response.status_code == 200, response.text
    rows = [each.get("row") for each in response.json()["results"]]
    assert [row and row["n"] for row in rows] == [0, 1, 2, None]


@pytest.mark.parametrize(
    ("params", "detail"),
    [
        ({"key.place": "{"}, "write it in JSON"),
        ({"key.place": '{"seat": 1}'}, "write it in JSON"),
        ({"key.tags.gt": "[]"}, "has no order"),
    ],
)
async def test_what_is_no_nested_key_is_refused(client: httpx.AsyncClient, params: dict[str, str], detail: str) -> None:
    response = await client.get(PATH, params=params)
    assert response.status_code == 400
    assert detail in response.text


async def test_a_map_is_refused_as_a_key(client: httpx.AsyncClient) -> None:
    response = await client.put("/v1/streams/maps", json={"key": ["m"], "columns": {"m": "map<string,int>"}})
    assert response.status_code == 422
    assert "the entries of a map have no order" in response.text

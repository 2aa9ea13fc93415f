"""As-of reads, histories and their limits, on a versioned result written as the sink writes it."""

from __future__ import annotations

from typing import Any

import httpx
import polars as pl
import psycopg
import pytest
from psycopg.types.json import Jsonb

from engine.commit.views import apply_changes
from engine.expressions.types.types import Schema
from engine.plan.model import Output
from tests.api.conftest import Problem

PATH = "/v1/tables/levels/rows"
QUERY = {
    "name": "levels",
    "from": {"table": "weather"},
    "select": {"origin": "origin", "temp": "temp"},
    "into": {"table": "levels", "versioned": {"history_retention": "100ms"}},
}
OUTPUT = Output(
    "levels", "table", Schema.from_json([["origin", "string"], ["temp", "double"]]), ("origin",),
    is_windowed=False, is_final=False, retention_ms=None, history_retention_ms=100,
)  # fmt: skip
# (key, event time, value; None deletes); stream time 300, so the retained history begins at 200.
PUTS = [
    ("EWR", 150, 1.0), ("EWR", 250, 2.0),
    ("JFK", 50, 10.0), ("JFK", 210, 11.0), ("JFK", 230, None), ("JFK", 260, 12.0),
    ("LGA", 90, 20.0),
    ("PHL", 110, 30.0), ("PHL", 120, None),
    ("SFO", 205, 40.0), ("SFO", 240, None),
]  # fmt: skip


@pytest.fixture(autouse=True)
async def levels(client: httpx.AsyncClient, dsn: str, sources: None) -> None:
    response = await client.post("/v1/queries", json=QUERY)
    assert response.status_code == 201, response.text
    with psycopg.connect(dsn) as connection, connection.cursor() as cursor:
        columns = {
            "origin": [origin for origin, _, _ in PUTS],
            "temp": [temp for _, _, temp in PUTS],
            "_ts": [ts for _, ts, _ in PUTS],
            "_op": [int(temp is None) for _, _, temp in PUTS],
        }
        apply_changes(cursor, OUTPUT, pl.DataFrame(columns), None)
        cursor.execute(
            "INSERT INTO log.commit (query_id, checkpoint_id, epoch, batch_id, committed_at, position, stream_time_ms, detail) "
            "SELECT id, checkpoint_id, 1, 0, now(), %s, 300, '{}' FROM slackwater.query",
            (Jsonb({"log:weather": {"0": 10}}),),
        )


async def rows(client: httpx.AsyncClient, path: str = PATH, /, **params: Any) -> list[dict[str, Any]]:
    response = await client.get(path, params=params)
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["rows"]
    return found


async def temps(client: httpx.AsyncClient, **params: Any) -> dict[str, float]:
    return {row["origin"]: row["temp"] for row in await rows(client, **params)}


async def test_rows_as_of_a_time_are_those_valid_then(client: httpx.AsyncClient) -> None:
    assert await temps(client) == {"EWR": 2.0, "JFK": 12.0, "LGA": 20.0}
    assert await temps(client, as_of_ms=200) == {"EWR": 1.0, "JFK": 10.0, "LGA": 20.0}
    assert await temps(client, as_of=209) == {"EWR": 1.0, "JFK": 10.0, "LGA": 20.0, "SFO": 40.0}
    assert await temps(client, as_of="1970-01-01T00:00:00.210Z") == {"EWR": 1.0, "JFK": 11.0, "LGA": 20.0, "SFO": 40.0}
    assert await temps(client, as_of=240) == {"EWR": 1.0, "LGA": 20.0}
    assert await temps(client, as_of=10_000) == {"EWR": 2.0, "JFK": 12.0, "LGA": 20.0}
    body = (await client.get(PATH, params={"as_of": 240})).json()
    assert (body["as_of_ms"], body["history_starts_at_ms"], body["stream_time_ms"]) == (240, 200, 300)


async def test_conditions_hold_for_the_version_that_was_valid(client: httpx.AsyncClient) -> None:
    assert await temps(client, **{"as_of": 200, "where.temp.lt": 12}) == {"EWR": 1.0, "JFK": 10.0}
    assert await temps(client, **{"as_of": 210, "where.temp": 10}) == {}, "an older version does not stand in"
    assert await temps(client, **{"as_of": 210, "key.origin.ge": "JFK", "key.origin.lt": "SFO"}) == {"JFK": 11.0, "LGA": 20.0}
    found = await rows(client, as_of=210, order="desc", limit=2)
    assert [row["origin"] for row in found] == ["SFO", "LGA"]


async def test_pages_as_of_a_time_cover_everything_once(client: httpx.AsyncClient) -> None:
    for order, expected in (("asc", ["EWR", "JFK", "LGA", "SFO"]), ("desc", ["SFO", "LGA", "JFK", "EWR"])):
        found: list[Any] = []
        params: dict[str, Any] = {"as_of": 210, "limit": 1, "order": order}
        while True:
            body = (await client.get(PATH, params=params)).json()
            found += [row["origin"] for row in body["rows"]]
            if body["next"] is None:
                break
            params["cursor"] = body["next"]
        assert found == expected


OUTCOMES: list[tuple[str, int, float | str]] = [
    ("EWR", 149, "history_expired"),
    ("EWR", 199, "history_expired"),
    ("EWR", 200, 1.0),
    ("EWR", 249, 1.0),
    ("EWR", 250, 2.0),
    ("JFK", 229, 11.0),
    ("JFK", 230, "row_deleted"),
    ("JFK", 259, "row_deleted"),
    ("JFK", 260, 12.0),
    ("LGA", 90, 20.0),
    ("LGA", 199, 20.0),
    ("LGA", 89, "history_expired"),
    ("LGA", 300, 20.0),
    ("PHL", 300, "row_not_found"),
    ("PHL", 115, "row_not_found"),
    ("SFO", 204, "row_not_found"),
    ("SFO", 199, "history_expired"),
    ("SFO", 300, "row_deleted"),
    ("XXX", 300, "row_not_found"),
    ("XXX", 1, "row_not_found"),
]


async def test_a_key_as_of_a_time_is_found_deleted_expired_or_not_there(client: httpx.AsyncClient, problem: Problem) -> None:
    for key, at, outcome in OUTCOMES:
        response = await client.get(f"{PATH}/{key}", params={"as_of": at})
        if isinstance(outcome, str):
            found = problem(response, 410 if outcome == "history_expired" else 404, outcome)
            assert outcome != "history_expired" or " ms " not in found["detail"]  # an instant a person can read
        else:
            assert [row["temp"] for row in response.json()["rows"]] == [outcome], (key, at)


async def test_many_rows_of_one_key_as_of_a_time_are_those_of_the_key(client: httpx.AsyncClient, problem: Problem) -> None:
    for key, at, outcome in OUTCOMES:
        response = await client.get(PATH, params={"as_of": at, "key.origin": key})
        if outcome == "history_expired":
            problem(response, 410, "history_expired")
        else:
            found = [row["temp"] for row in response.json()["rows"]]
            assert found == ([] if isinstance(outcome, str) else [outcome]), (key, at)


async def test_a_lookup_as_of_a_time_says_the_same_of_each_key(client: httpx.AsyncClient) -> None:
    for key, at, outcome in OUTCOMES:
        body = (await client.post(f"{PATH}:lookup", params={"as_of": at}, json={"keys": [key]})).json()
        [result] = body["results"]
        assert (result["reason"] or result["row"]["temp"]) == outcome, (key, at)


async def test_the_rows_of_now_say_what_was_deleted(client: httpx.AsyncClient, problem: Problem) -> None:
    problem(await client.get(f"{PATH}/SFO"), 404, "row_deleted")
    problem(await client.get(f"{PATH}/PHL"), 404, "row_not_found")
    problem(await client.get(f"{PATH}/XXX"), 404, "row_not_found")
    body = (await client.post(f"{PATH}:lookup", json={"keys": ["JFK", "SFO", "PHL"]})).json()
    assert [result["reason"] for result in body["results"]] == [None, "row_deleted", "row_not_found"]


async def test_many_rows_from_before_the_retained_history_are_gone(client: httpx.AsyncClient, problem: Problem) -> None:
    problem(await client.get(PATH, params={"as_of": 199}), 410, "history_expired")
    problem(await client.get(PATH, params={"as_of": 199, "key.origin.ge": "LGA"}), 410, "history_expired")
    problem(await client.get(PATH, params={"as_of": 199, "key.origin": "LGA", "where.temp": 20}), 410, "history_expired")


def versions(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["origin"], row["temp"], row["$valid_from_ms"], row["$valid_to_ms"]) for row in found]


async def test_a_history_has_the_versions_whose_validity_meets_the_range(client: httpx.AsyncClient) -> None:
    jfk: list[tuple[Any, ...]] = [("JFK", 10.0, 50, 210), ("JFK", 11.0, 210, 230), ("JFK", 12.0, 260, None)]
    assert versions(await rows(client, f"{PATH}/JFK", **{"from": 0})) == jfk
    assert versions(await rows(client, f"{PATH}/JFK", order="desc", to=300)) == jfk[::-1]
    assert versions(await rows(client, f"{PATH}/JFK", **{"from": 210, "to": 259})) == jfk[1:2]
    assert versions(await rows(client, f"{PATH}/JFK", **{"from": 209, "to": 210})) == jfk[:2]
    assert versions(await rows(client, f"{PATH}/JFK", **{"from": 231, "to": 240})) == []
    assert versions(await rows(client, f"{PATH}/EWR", **{"from": 0, "to": 180})) == [], "what the range has cannot be said"
    assert versions(await rows(client, f"{PATH}/LGA", **{"from": 0, "to": 180})) == [("LGA", 20.0, 90, None)]
    assert versions(await rows(client, f"{PATH}/PHL", **{"from": 0})) == []
    assert versions(await rows(client, f"{PATH}/XXX", **{"from": 0})) == []


async def test_a_history_says_when_it_begins_before_what_is_retained(client: httpx.AsyncClient) -> None:
    for start, is_truncated in ((199, True), (200, False)):
        body = (await client.get(f"{PATH}/JFK", params={"from": start})).json()
        assert (body["truncated"], body["history_starts_at_ms"]) == (is_truncated, 200)


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_pages_of_a_history_cover_everything_once(client: httpx.AsyncClient, order: str) -> None:
    every = versions(await rows(client, **{"from": 0, "key.origin.in": "JFK,EWR,SFO"}))
    assert [(origin, start) for origin, _, start, _ in every] == [
        ("EWR", 150), ("EWR", 250), ("JFK", 50), ("JFK", 210), ("JFK", 260), ("SFO", 205),
    ]  # fmt: skip
    found: list[Any] = []
    params: dict[str, Any] = {"from": 0, "key.origin.in": "JFK,EWR,SFO", "limit": 1, "order": order}
    while True:
        body = (await client.get(PATH, params=params)).json()
        found += versions(body["rows"])
        if body["next"] is None:
            break
        params["cursor"] = body["next"]
    assert found == (every if order == "asc" else every[::-1])


async def test_conditions_on_a_history_choose_versions(client: httpx.AsyncClient) -> None:
    found = versions(await rows(client, **{"from": 0, "where.temp.ge": 11, "key.origin": "JFK"}))
    assert found == [("JFK", 11.0, 210, 230), ("JFK", 12.0, 260, None)], "validity does not depend on conditions"


async def test_before_the_first_record_nothing_is_expired(client: httpx.AsyncClient, dsn: str, problem: Problem) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE log.commit SET stream_time_ms = NULL")
    assert await temps(client, as_of=60) == {"JFK": 10.0}
    problem(await client.get(f"{PATH}/PHL", params={"as_of": 130}), 404, "row_deleted")
    body = (await client.get(f"{PATH}/JFK", params={"from": 0})).json()
    assert (body["truncated"], body["history_starts_at_ms"], len(body["rows"])) == (False, None, 3)

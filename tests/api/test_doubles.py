"""One number, one text: doubles look the same wherever they are read."""

from __future__ import annotations

import io
import json
from typing import Any

import httpx
import polars as pl
import psycopg
import pytest

from tests.api.change_writer import ChangeWriter
from tests.api.conftest import RECORD, WINDOWS

pytestmark = pytest.mark.usefixtures("sources")
NUMBERS = [("3", "3.0"), ("-0.0", "-0.0"), ("2.5", "2.5"), ("123456789012345", "123456789012345.0"), ("1e300", "1e+300")]


@pytest.mark.parametrize(("number", "shown"), NUMBERS)
async def test_a_double_is_never_taken_for_an_integer(client: httpx.AsyncClient, dsn: str, number: str, shown: str) -> None:
    assert (await client.post("/v1/queries", json=WINDOWS)).status_code == 201
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("INSERT INTO views.delays VALUES ('JFK', 'epoch', 'epoch', 2, %s, 9)", (number,))
    rows = (await client.get("/v1/tables/delays/rows")).text
    assert f'"mean_delay":{shown}' in rows
    body = f'{{"origin": "JFK", "flight": 7, "delay": {number}, "departed_at": "{RECORD["departed_at"]}"}}'
    headers = {"content-type": "application/json"}
    assert (await client.post("/v1/streams/departures/records", content=body, headers=headers)).status_code == 200
    partitions = [await client.get("/v1/streams/departures/records", params={"partition": each}) for each in (0, 1)]
    (record,) = [record for page in partitions for record in page.json()["records"]]
    (row,) = (await client.get("/v1/tables/delays/rows")).json()["rows"]
    assert (type(record["delay"]), record["delay"]) == (type(row["mean_delay"]), row["mean_delay"])


def refused(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


async def shown(client: httpx.AsyncClient, method: str, path: str, **more: Any) -> Any:
    """Return an answer that is JSON to the letter."""
    response = await client.request(method, path, **more)
    assert response.status_code in (200, 201), response.text
    return json.loads(response.text, parse_constant=refused)


SOURCE = "CREATE TABLE sides (id STRING PRIMARY KEY, area DOUBLE) WITH (KAFKA_TOPIC='sides', VALUE_FORMAT='JSON', PARTITIONS=1);"
ROOTS = "CREATE TABLE roots AS SELECT id, SQRT(area) AS root FROM sides;"
LOGS = (
    "CREATE STREAM areas (id STRING KEY, area DOUBLE) WITH (KAFKA_TOPIC='areas', VALUE_FORMAT='JSON', PARTITIONS=1);"
    "CREATE STREAM logs AS SELECT id, LN(area) AS log FROM areas;"
)
ODD = [("a", float("nan"), "NaN"), ("b", float("inf"), "Infinity"), ("c", float("-inf"), "-Infinity"), ("d", 2.0, 2.0)]


async def test_numbers_that_json_has_not_are_texts_in_every_answer_about_a_table(client: httpx.AsyncClient, dsn: str) -> None:
    await shown(client, "POST", "/v1/statements", json={"sql": SOURCE + ROOTS})
    wanted = {key: text for key, _, text in ODD}
    with ChangeWriter(dsn, "roots") as writer:
        writer.commit([("upsert", {"ID": key, "ROOT": value}, 5) for key, value, _ in ODD])
    read = await shown(client, "GET", "/v1/tables/roots/rows")
    assert {row["ID"]: row["ROOT"] for row in read["rows"]} == wanted
    changes = await shown(client, "GET", "/v1/tables/roots/changes")
    assert {each["row"]["ID"]: each["row"]["ROOT"] for each in changes["changes"]} == wanted
    snapshot = await shown(client, "GET", "/v1/tables/roots/changes", params={"from": "snapshot"})
    assert {each["row"]["ID"]: each["row"]["ROOT"] for each in snapshot["changes"]} == wanted
    (pull,) = (await shown(client, "POST", "/v1/statements", json={"sql": "SELECT id, root FROM roots;"}))["results"]
    assert dict(pull["rows"]) == wanted
    arrow = await client.get("/v1/tables/roots/rows", headers={"accept": "application/vnd.apache.arrow.stream"})
    roots = dict(pl.read_ipc_stream(io.BytesIO(arrow.content)).select("ID", "ROOT").rows())
    assert str(sorted(roots.items())) == str(sorted((key, value) for key, value, _ in ODD))


async def test_numbers_that_json_has_not_are_texts_in_every_answer_about_a_stream(client: httpx.AsyncClient, dsn: str) -> None:
    await shown(client, "POST", "/v1/statements", json={"sql": LOGS})
    wanted = {key: text for key, _, text in ODD}
    with ChangeWriter(dsn, "logs") as writer:
        writer.commit([("upsert", {"ID": key, "LOG": value}, 5) for key, value, _ in ODD])
    records = await shown(client, "GET", "/v1/streams/logs/records")
    assert {each["ID"]: each["LOG"] for each in records["records"]} == wanted
    pull, printed = (
        await shown(
            client, "POST", "/v1/statements", json={"sql": "SELECT id, log FROM logs; PRINT logs FROM BEGINNING LIMIT 4;"}
        )
    )["results"]
    assert dict(pull["rows"]) == wanted
    assert {
        value["ID"]: value["LOG"] for value in (json.loads(row[-1], parse_constant=refused) for row in printed["rows"])
    } == wanted


async def test_a_record_with_such_a_number_inside_of_a_value_is_kept(client: httpx.AsyncClient, dsn: str) -> None:
    pair = LOGS.replace("LN(area) AS log", "ARRAY[LN(area), area] AS log")
    await shown(client, "POST", "/v1/statements", json={"sql": pair})
    with ChangeWriter(dsn, "logs") as writer:
        writer.commit([("upsert", {"ID": "a", "LOG": [float("-inf"), 0.0]}, 5)])
    records = await shown(client, "GET", "/v1/streams/logs/records")
    assert [each["LOG"] for each in records["records"]] == [[None, 0.0]]
    (pull,) = (await shown(client, "POST", "/v1/statements", json={"sql": "SELECT log[2] AS second, log FROM logs;"}))["results"]
    assert pull["rows"] == [[0.0, [None, 0.0]]]

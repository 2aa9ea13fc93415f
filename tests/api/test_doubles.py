"""One number, one text: doubles look the same wherever they are read."""

from __future__ import annotations

import httpx
import psycopg
import pytest

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

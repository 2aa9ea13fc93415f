"""How many tasks a query has that does not say: those of the cores that it can use, spelled out and kept (T1: a matter of speed only)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import psycopg
import pytest

from app.main.main import create_app
from app.settings.settings import Settings
from app.settings.spark_settings import SparkSettings
from tests.api.conftest import TABLE, WINDOWS

CORES = 3
QUERY = "/v1/queries/delays"
STATEMENT = """CREATE TABLE "DELAYS" AS SELECT "origin", COUNT(*) AS "n" FROM "departures" GROUP BY "origin" EMIT CHANGES;"""


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"spark": SparkSettings(master=f"local[{CORES}]", shuffle_partitions=8)})


@pytest.fixture
async def moved(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """The service on a machine with more cores."""
    built = create_app(settings.model_copy(update={"spark": SparkSettings(master="local[8]", shuffle_partitions=8)}))
    transport = httpx.ASGITransport(app=built)
    async with built.router.lifespan_context(built), httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        yield http


async def stored(client: httpx.AsyncClient) -> tuple[int, str]:
    """The number in JSON and the statement."""
    body = (await client.get(QUERY)).json()
    return body["definition"]["tasks"], body["sql"]


async def validated(client: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = (await client.post("/v1/validations", json=body)).json()
    assert answer["valid"], answer
    return answer


@pytest.mark.usefixtures("sources")
async def test_a_new_query_has_a_task_for_each_core_and_shows_the_number_everywhere(client: httpx.AsyncClient) -> None:
    preview = await validated(client, WINDOWS)
    assert (preview["definition"]["tasks"], f"TASKS = {CORES}" in preview["sql"]) == (CORES, True)
    compared = {"definitions": [{"kind": "query", "name": "delays", "definition": WINDOWS}]}
    (item,) = (await client.post("/v1/comparisons", json=compared)).json()["items"]
    assert item["definition"]["tasks"] == CORES
    assert (await client.post("/v1/queries", json=WINDOWS)).json()["definition"]["tasks"] == CORES
    tasks, sql = await stored(client)
    assert (tasks, f"TASKS = {CORES}" in sql) == (CORES, True)


@pytest.mark.usefixtures("sources")
async def test_a_number_that_is_given_is_kept(client: httpx.AsyncClient) -> None:
    preview = await validated(client, {**WINDOWS, "tasks": 7})
    assert (preview["definition"]["tasks"], "TASKS = 7" in preview["sql"]) == (7, True)
    assert (await client.post("/v1/queries", json={**WINDOWS, "tasks": 7})).json()["definition"]["tasks"] == 7


@pytest.mark.usefixtures("sources")
async def test_an_edit_that_does_not_say_keeps_the_number(client: httpx.AsyncClient) -> None:
    await client.post("/v1/queries", json={**WINDOWS, "tasks": 5})
    wider = {**WINDOWS, "window": {**WINDOWS["window"], "grace": "45m"}}
    for body, kind in ((WINDOWS, "no_op"), (wider, "in_place")):
        preview = await validated(client, body)
        assert (preview["edit"]["kind"], preview["definition"]["tasks"]) == (kind, 5)
        compared = {"definitions": [{"kind": "query", "name": "delays", "definition": body}]}
        (item,) = (await client.post("/v1/comparisons", json=compared)).json()["items"]
        assert (item["action"], item["definition"]["tasks"]) == (kind, 5)
        assert (await client.put(QUERY, json=body)).json()["definition"]["tasks"] == 5
    assert (await stored(client))[0] == 5


@pytest.mark.usefixtures("sources")
async def test_other_cores_change_no_query_that_is_there(client: httpx.AsyncClient, moved: httpx.AsyncClient) -> None:
    await client.post("/v1/queries", json=WINDOWS)
    answer = (await moved.put(QUERY, json=WINDOWS)).json()
    assert (answer["definition"]["tasks"], answer["generation"]) == (CORES, 1)
    other = (await moved.post("/v1/queries", json={**WINDOWS, "name": "more", "into": {"table": "more"}})).json()
    assert other["definition"]["tasks"] == 8


@pytest.mark.usefixtures("sources")
async def test_a_statement_gives_a_new_query_the_same_number(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/statements", json={"sql": STATEMENT})
    assert answer.status_code == 200, answer.text
    (query,) = (await client.get("/v1/queries")).json()["items"]
    shown = (await client.get(f"/v1/queries/{query['name']}")).json()
    assert (shown["definition"]["tasks"], f"TASKS = {CORES}" in shown["sql"]) == (CORES, True)


async def test_the_query_that_stores_a_sources_rows_has_the_same_number(client: httpx.AsyncClient, dsn: str) -> None:
    table = {**TABLE, "materialize": True}
    assert (await client.put("/v1/tables/weather", json=table)).status_code == 201
    with psycopg.connect(dsn) as connection:
        found = connection.execute("SELECT definition -> 'tasks' FROM slackwater.query").fetchall()
    assert found == [(CORES,)]


@pytest.mark.usefixtures("sources")
async def test_a_fork_has_the_number_of_its_original(client: httpx.AsyncClient) -> None:
    await client.post("/v1/queries", json={**WINDOWS, "tasks": 5})
    body = {"name": "other"}
    answer = await client.post(f"{QUERY}/fork", json=body)
    assert answer.status_code == 201, answer.text
    assert (await client.get("/v1/queries/other")).json()["definition"]["tasks"] == 5

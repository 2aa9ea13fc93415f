"""GET /v1/errors, and the `type` of problems that leads there."""

from __future__ import annotations

import httpx
from fastapi import FastAPI

from app.errors.error_list import ERRORS, explained_at
from tests.api.conftest import Problem


async def test_the_type_of_a_problem_leads_to_its_page(client: httpx.AsyncClient, problem: Problem) -> None:
    body = problem(await client.get("/v1/queries/nothing"), 404, "query_not_found")
    page = (await client.get(body["type"])).json()
    assert (page["code"], page["status"], page["retryable"], page["title"]) == ("query_not_found", 404, False, body["title"])
    assert "GET /v1/queries" in page["cure"]


async def test_every_code_is_listed_and_has_a_page(client: httpx.AsyncClient, problem: Problem) -> None:
    items = (await client.get("/v1/errors")).json()["items"]
    assert [item["code"] for item in items] == sorted(ERRORS)
    body = problem(await client.get("/v1/errors/query_not_fond"), 404, "error_not_found")
    assert "did you mean query_not_found?" in body["detail"]


async def test_the_link_of_every_code_resolves(client: httpx.AsyncClient) -> None:
    """The guide has a heading for each of them: ``tests/unit/guide/test_reference.py``."""
    for code in ERRORS:
        answer = await client.get(explained_at(code))
        assert (answer.status_code, answer.json()["code"]) == (200, code)


async def test_every_fault_and_warning_says_where_its_code_is_explained(client: httpx.AsyncClient) -> None:
    refused = (await client.post("/v1/queries", json={"name": "q", "from": {"stream": "nowhere"}, "into": {"table": "q"}})).json()
    checked = (await client.post("/v1/validations", json={"name": "q", "from": {"stream": "nowhere"}})).json()
    statement = (await client.post("/v1/statements", json={"sql": "SELEKT 1;"})).json()
    table = {"key": ["id"], "columns": {"id": "string", "at": "timestamp"}, "event_time": "at"}
    warned = (await client.put("/v1/tables/warned", json=table)).json()
    lists = (refused["errors"], checked["problems"], statement["errors"], warned["warnings"])
    assert all(lists)
    for item in (each for items in lists for each in items):
        assert item["type"] == f"/v1/errors/{item['code']}"
        assert (await client.get(item["type"])).status_code == 200


async def test_the_document_has_the_codes_as_an_enum(app: FastAPI) -> None:
    schemas = app.openapi()["components"]["schemas"]
    assert schemas["ErrorCode"]["enum"] == sorted(ERRORS)
    for model in ("ProblemBody", "FaultBody", "ProblemItem", "QueryError"):
        assert schemas[model]["properties"]["code"]["$ref"] == "#/components/schemas/ErrorCode", model

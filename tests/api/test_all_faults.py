"""Requests with several faults: every one comes with the first answer, from every route that takes a definition."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.api.conftest import JOIN, STREAM

BAD: dict[str, Any] = {
    **JOIN,
    "whre": "delay > 0",
    "tasks": 0,
    "select": {"origin": "departures.orign", "n": "lenght(departures.origin)"},
}
EXPECTED = {
    "/whre": "unknown_field",
    "/tasks": "invalid_value",
    "/select/origin": "unknown_column",
    "/select/n": "unknown_function",
}


@pytest.mark.usefixtures("sources")
async def test_a_query_is_told_everything_by_post_put_and_validation(client: httpx.AsyncClient) -> None:
    posted = await client.post("/v1/queries", json=BAD)
    put = await client.put("/v1/queries/joined", json=BAD)
    checked = await client.post("/v1/validations", json=BAD)
    assert (posted.status_code, put.status_code, checked.status_code) == (422, 422, 200)
    for found in (posted.json()["errors"], put.json()["errors"], checked.json()["problems"]):
        assert {fault["pointer"]: fault["code"] for fault in found} == EXPECTED
        assert "did you mean where?" in next(fault["detail"] for fault in found if fault["pointer"] == "/whre")
    assert (await client.get("/v1/queries")).json()["items"] == []


async def test_a_source_is_told_everything(client: httpx.AsyncClient) -> None:
    answer = await client.put("/v1/streams/s", json={**STREAM, "key": ["orgin"], "evnt_time": "x", "on_bad_record": "stopp"})
    assert answer.status_code == 422
    assert {fault["pointer"] for fault in answer.json()["errors"]} == {"/key/0", "/evnt_time", "/on_bad_record"}


@pytest.mark.usefixtures("sources")
async def test_other_bodies_suggest_as_well(client: httpx.AsyncClient) -> None:
    await client.post("/v1/queries", json=JOIN)
    answer = await client.put("/v1/queries/joined/desired-state", json={"desired_state": "paused"})
    assert "did you mean state?" in answer.json()["detail"]
    answer = await client.put("/v1/queries/joined/desired-state", json={"state": "puased"})
    assert "did you mean paused?" in answer.json()["detail"]
    answer = await client.post("/v1/queries/joined/late-records/replay", json={"fliter": {}})
    assert "did you mean filter?" in answer.json()["detail"]

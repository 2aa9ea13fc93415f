from __future__ import annotations

import httpx
import pytest

from tests.api.conftest import JOIN, WINDOWS, Problem

pytestmark = pytest.mark.usefixtures("sources")


async def test_a_created_query_spells_out_every_default(client: httpx.AsyncClient) -> None:
    response = await client.post("/v1/queries", json=WINDOWS)
    assert response.status_code == 201, response.text
    body = response.json()
    assert response.headers["location"] == "/v1/queries/delays"
    assert response.headers["etag"] == '"1"'
    assert body["definition"]["window"] | {"retention": "7d", "grace": "30m"} == body["definition"]["window"]
    assert body["definition"]["tasks"] == 4
    assert body["definition"]["late_records"] == {"max_rows": 100_000, "retention": "7d"}
    assert (body["state"], body["desired_state"], body["generation"]) == ("stopped", "running", 1)
    assert (await client.get("/v1/queries/delays")).json() == body

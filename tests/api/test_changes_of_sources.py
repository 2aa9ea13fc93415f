"""Following sources whose rows are kept for reading."""

from __future__ import annotations

import httpx

from tests.api.change_writer import ChangeWriter
from tests.api.conftest import TABLE
from tests.api.test_changes import page


async def test_a_materialised_source_is_followed_like_any_table(client: httpx.AsyncClient, dsn: str) -> None:
    latest = {**TABLE, "versioned": None, "materialize": True}
    assert (await client.put("/v1/tables/weather", json=latest)).status_code == 201
    weather = {"origin": "JFK", "temp": 21.5, "observed_at": None}
    with ChangeWriter(dsn, "materialize:weather") as writer:
        writer.commit([("upsert", weather, 10)])
        found = await page(client, "/v1/tables/weather/changes", **{"from": "snapshot"})
        assert [(c["kind"], c["row"]) for c in found["changes"]] == [("snapshot", weather)]
        writer.commit([("delete", weather, 20)])
    after = await page(client, "/v1/tables/weather/changes", cursor=found["next"])
    assert [(c["op"], c["key"], c["row"]) for c in after["changes"]] == [("delete", {"origin": "JFK"}, None)]

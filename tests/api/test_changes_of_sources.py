"""Following sources whose rows are kept for reading."""

from __future__ import annotations

import httpx
import pytest
from fastapi import FastAPI

from app.errors.app_errors import Unavailable
from app.following.changes import ChangeSource
from app.following.followed import Followables
from app.following.tails.tail import Tail
from app.following.tails.tails import Tails
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


async def test_bytes_inside_values_are_the_same_in_rows_changes_and_a_snapshot(client: httpx.AsyncClient, dsn: str) -> None:
    parts = {"key": ["k"], "columns": {"k": "string", "parts": "array<bytes>"}, "materialize": True}
    assert (await client.put("/v1/tables/parts", json=parts)).status_code == 201
    with ChangeWriter(dsn, "materialize:parts") as writer:
        writer.commit([("upsert", {"k": "a", "parts": [b"\x00\x01abc"]}, 5)])
    row = {"k": "a", "parts": ["AAFhYmM="]}
    assert (await client.get("/v1/tables/parts/rows")).json()["rows"] == [row]
    for start in ("earliest", "snapshot"):
        found = await page(client, "/v1/tables/parts/changes", **{"from": start})
        assert [change["row"] for change in found["changes"]] == [row], start


async def test_a_page_looks_through_a_bounded_part_of_a_shared_feed(client: httpx.AsyncClient) -> None:
    for kind in ("bid", "ask"):
        connector = {"type": "log", "partitions": 1, "feed": "events", "where": f"kind = '{kind}'"}
        shared = {"columns": {"kind": "string", "n": "bigint"}, "connector": connector}
        assert (await client.put(f"/v1/streams/{kind}s", json=shared)).status_code == 201
    posted, looked_through = 66_000, 1 + 63 * 1_000
    bids = "\n".join(f'{{"kind":"bid","n":{n}}}' for n in range(posted))
    sent = await client.post("/v1/streams/bids/records", content=bids, headers={"content-type": "application/x-ndjson"})
    assert sent.json()["appended"] == posted
    ask = [{"kind": "ask", "n": 1}, {"kind": "ask", "n": 2}]
    assert (await client.post("/v1/streams/asks/records", json=ask)).status_code == 200
    first = await page(client, "/v1/streams/asks/changes", limit=1)
    assert (first["changes"], first["caught_up"], first["next"].split(".")[1]) == ([], False, str(looked_through))
    second = await page(client, "/v1/streams/asks/changes", limit=1, cursor=first["next"])
    third = await page(client, "/v1/streams/asks/changes", limit=1, cursor=second["next"])
    assert [(c["row"]["n"], c["offset"]) for c in second["changes"] + third["changes"]] == [(1, posted), (2, posted + 1)]
    assert (second["caught_up"], third["caught_up"]) == (False, True)


async def test_changes_from_before_a_column_was_there_have_null_in_it(client: httpx.AsyncClient, dsn: str) -> None:
    latest = {**TABLE, "versioned": None, "materialize": True}
    assert (await client.put("/v1/tables/weather", json=latest)).status_code == 201
    weather = {"origin": "JFK", "temp": 21.5, "observed_at": None}
    with ChangeWriter(dsn, "materialize:weather") as writer:
        writer.commit([("upsert", weather, 10)])
    more = {**latest, "columns": {**TABLE["columns"], "wind": "double"}}
    assert (await client.put("/v1/tables/weather", json=more)).status_code == 200
    with ChangeWriter(dsn, "materialize:weather") as writer:
        writer.commit([("upsert", {**weather, "wind": 3.5}, 20)])
    found = await page(client, "/v1/tables/weather/changes", **{"from": "earliest"})
    assert [change["row"]["wind"] for change in found["changes"]] == [None, 3.5]


async def waited(tail: Tail) -> None:
    """Follow until the tail ends."""
    while True:
        await tail.wait(10)


async def test_who_follows_a_source_is_told_to_come_again_when_its_columns_change(
    app: FastAPI, client: httpx.AsyncClient
) -> None:
    plain = {"columns": {"n": "int"}, "connector": {"type": "log", "partitions": 1}}
    assert (await client.put("/v1/streams/bids", json=plain)).status_code == 201
    source = ChangeSource(await app.state.services.of(Followables).find("stream", "bids"), has_text_numbers=False)
    tails = app.state.services.of(Tails)
    async with tails.following(source, await tails.look(source)) as tail:
        assert (await client.put("/v1/streams/bids", json={**plain, "columns": {"n": "bigint"}})).status_code == 200
        assert (await client.post("/v1/streams/bids/records", json={"n": 2**40})).json()["appended"] == 1
        async with tails.reading() as connection:
            with pytest.raises(Unavailable, match="other columns"):
                await source.heads(connection)
        with pytest.raises(Unavailable, match="other columns"):
            await waited(tail)
    found = await page(client, "/v1/streams/bids/changes", **{"from": "earliest"})
    assert [change["row"] for change in found["changes"]] == [{"n": 2**40}]

"""GET …/changes and …/records of a stream into which queries write: all its records, each part in its own order."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from app.following.changes import ChangeSource
from app.following.followed import Followables
from app.following.tails.tails import Tails
from tests.api.change_writer import ChangeWriter
from tests.api.conftest import RECORD, STREAM, Problem

AT = 1_357_041_600_000
H = 3_600_000
Json = dict[str, Any]


@pytest.fixture(autouse=True)
async def _streams(client: httpx.AsyncClient) -> None:
    for name in ("departures", "web", "shop"):
        assert (await client.put(f"/v1/streams/{name}", json=STREAM)).status_code == 201
    await create(client, "web")


async def create(client: httpx.AsyncClient, source: str) -> None:
    body = {"name": source, "from": {"stream": source}, "into": {"stream": f"from_{source}", "append_to": "departures"}}
    response = await client.post("/v1/queries", json=body)
    assert response.status_code == 201, response.text


async def append(client: httpx.AsyncClient, *flights: int) -> None:
    records = [{**RECORD, "flight": flight} for flight in flights]
    assert (await client.post("/v1/streams/departures/records", json=records)).status_code == 200


def write(dsn: str, query: str, *flights: int, ts: int = AT, shift_ms: int = 0) -> None:
    values = {"origin": "JFK", "departed_at": 1_000 * (ts + shift_ms)}
    with ChangeWriter(dsn, query) as writing:
        writing.commit([("upsert", {**values, "flight": flight}, ts) for flight in flights])


async def page(client: httpx.AsyncClient, **params: Any) -> Json:
    response = await client.get("/v1/streams/departures/changes", params=params)
    assert response.status_code == 200, response.text
    return response.json()  # type: ignore[no-any-return]


async def followed(client: httpx.AsyncClient, cursor: str | None = None, limit: int = 1_000) -> tuple[list[tuple[Any, int]], str]:
    """Return (part, flight) of every record behind a cursor, and the last cursor."""
    found: list[tuple[Any, int]] = []
    while True:
        got = await page(client, limit=limit, **({} if cursor is None else {"cursor": cursor}))
        found += [(change.get("part"), change["row"]["flight"]) for change in got["changes"]]
        cursor = got["next"]
        if got["caught_up"]:
            return found, cursor


@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_who_follows_a_stream_gets_its_parts_each_record_once(client: httpx.AsyncClient, dsn: str, limit: int) -> None:
    await create(client, "shop")
    await append(client, 1, 2)
    write(dsn, "web", 10, 11)
    write(dsn, "shop", 20)
    found, cursor = await followed(client, limit=limit)
    assert found == [(None, 1), (None, 2), ("from_web", 10), ("from_web", 11), ("from_shop", 20)]
    write(dsn, "shop", 21)
    await append(client, 3)
    write(dsn, "web", 12)
    assert (await followed(client, cursor, limit))[0] == [(None, 3), ("from_web", 12), ("from_shop", 21)]


async def test_a_part_that_comes_later_is_followed_from_its_beginning(client: httpx.AsyncClient, dsn: str) -> None:
    await append(client, 1)
    write(dsn, "web", 10)
    _, cursor = await followed(client)
    await create(client, "shop")
    write(dsn, "shop", 20)
    assert (await followed(client, cursor))[0] == [("from_shop", 20)]


async def test_a_cursor_from_before_there_were_parts_goes_on_with_all_of_them(client: httpx.AsyncClient, dsn: str) -> None:
    write(dsn, "web", 10)
    cursor = (await page(client))["next"]
    assert "~" in cursor
    assert (await followed(client, cursor.split("~")[0]))[0] == [("from_web", 10)]


async def test_latest_begins_behind_what_the_parts_have(client: httpx.AsyncClient, dsn: str) -> None:
    write(dsn, "web", 10)
    cursor = (await page(client, **{"from": "latest"}))["next"]
    write(dsn, "web", 11)
    assert (await followed(client, cursor))[0] == [("from_web", 11)]


async def test_a_part_that_goes_ends_a_cursor_and_one_that_is_kept_does_not(
    client: httpx.AsyncClient, dsn: str, problem: Problem
) -> None:
    write(dsn, "web", 10)
    _, cursor = await followed(client)
    assert (await client.delete("/v1/queries/web", params={"state": "keep"})).status_code in (202, 204)
    assert (await followed(client, cursor))[0] == []
    assert (await client.delete("/v1/streams/from_web")).status_code == 204
    gone = await client.get("/v1/streams/departures/changes", params={"cursor": cursor})
    assert "deleted with its records" in problem(gone, 410, "cursor_expired")["detail"]
    assert (await followed(client))[0] == []


async def test_records_of_a_part_have_the_event_time_that_they_have_in_the_stream(client: httpx.AsyncClient, dsn: str) -> None:
    write(dsn, "web", 10, shift_ms=H)
    (change,) = (await page(client))["changes"]
    assert (change["event_time_ms"], change["partition"], change["sequence"]) == (AT + H, 0, 0)
    (record,) = (await client.get("/v1/streams/departures/records", params={"part": "from_web"})).json()["records"]
    assert (record["$event_time_ms"], record["$offset"], record["flight"], record["delay"]) == (AT + H, 0, 10, None)


async def test_records_name_the_parts_and_read_one(client: httpx.AsyncClient, dsn: str, problem: Problem) -> None:
    await append(client, 1)
    write(dsn, "web", 10, 11)
    own = (await client.get("/v1/streams/departures/records")).json()
    assert (own["part"], own["parts"]) == (None, ["from_web"])
    first = (await client.get("/v1/streams/departures/records", params={"part": "from_web", "limit": 1})).json()
    assert (first["part"], first["partition"], first["next_offset"], first["end_offset"]) == ("from_web", None, 1, 2)
    rest = (await client.get("/v1/streams/departures/records", params={"part": "from_web", "offset": 1})).json()
    assert [record["flight"] for record in rest["records"]] == [11]
    refused = problem(await client.get("/v1/streams/departures/records", params={"part": "web"}), 400, "bad_parameter", "?part")
    assert "its parts are from_web" in refused["detail"]
    problem(await client.get("/v1/streams/web/records", params={"part": "from_web"}), 400, "bad_parameter", "?part")


async def test_a_follower_that_is_there_comes_again_for_another_part(client: httpx.AsyncClient, app: Any, dsn: str) -> None:
    """Its tail ends with `relation_changing`, so an event stream says `reconnect`, with the cursor."""
    services = app.state.services
    source = ChangeSource(await services.of(Followables).find("stream", "departures"), has_text_numbers=False)
    async with services.of(Tails).reading() as connection:
        assert len(await source.heads(connection)) == len(source.followed.lanes) == STREAM["connector"]["partitions"] + 1
    await create(client, "shop")
    async with services.of(Tails).reading() as connection:
        with pytest.raises(Exception, match="other queries append"):
            await source.heads(connection)


async def test_a_wait_ends_with_a_record_of_a_part(client: httpx.AsyncClient, dsn: str) -> None:
    cursor = (await page(client))["next"]
    write(dsn, "web", 10)
    waited = await page(client, cursor=cursor, wait=20)
    assert [change["part"] for change in waited["changes"]] == ["from_web"]

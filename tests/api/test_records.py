"""Appending to sources and reading streams."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import httpx
import polars as pl
import psycopg
import pytest

from tests.api.conftest import RECORD, STREAM, Problem

pytestmark = pytest.mark.usefixtures("sources")
PATH = "/v1/streams/departures/records"


async def everything(client: httpx.AsyncClient, stream: str = "departures", partitions: int = 2) -> list[dict[str, Any]]:
    found = []
    for partition in range(partitions):
        page = (await client.get(f"/v1/streams/{stream}/records", params={"partition": partition, "limit": 10_000})).json()
        found += page["records"]
    return found


async def test_an_array_is_appended_and_read_back(client: httpx.AsyncClient) -> None:
    response = await client.post(PATH, json=[RECORD, {**RECORD, "flight": 2}])
    assert response.status_code == 200, response.text
    answer = response.json()
    assert (answer["appended"], answer["rejected_count"], answer["rejected"]) == (2, 0, [])
    [part] = answer["offsets"]
    assert part | {"first_offset": 0, "last_offset": 1, "count": 2} == part
    page = (await client.get(PATH, params={"partition": part["partition"]})).json()
    assert page["records"] == [
        {"$offset": 0, "$event_time_ms": 1357037040000, **RECORD},
        {"$offset": 1, "$event_time_ms": 1357037040000, **RECORD, "flight": 2},
    ]
    assert (page["next_offset"], page["end_offset"], page["stale"]) == (2, 2, False)


async def test_an_answer_without_a_partition_says_how_many_there_are(client: httpx.AsyncClient) -> None:
    [part] = (await client.post(PATH, json=[RECORD])).json()["offsets"]
    page = (await client.get(PATH)).json()
    assert (page["partition"], page["partition_count"]) == (0, 2), f"the record is in partition {part['partition']}"


async def test_a_single_object_is_one_record(client: httpx.AsyncClient) -> None:
    assert (await client.post(PATH, json=RECORD)).json()["appended"] == 1


@pytest.mark.parametrize("body", ["[]", ""])
async def test_nothing_appends_nothing(client: httpx.AsyncClient, body: str) -> None:
    kind = "application/json" if body else "application/x-ndjson"
    response = await client.post(PATH, content=body, headers={"content-type": kind})
    assert response.json() == {
        "appended": 0,
        "offsets": [],
        "rejected_count": 0,
        "rejected": [],
        "older_count": 0,
        "warnings": [],
    }


async def test_lines_are_appended(client: httpx.AsyncClient) -> None:
    lines = "\n".join(json.dumps({**RECORD, "flight": n}) for n in range(100))
    response = await client.post(PATH, content=lines, headers={"content-type": "application/x-ndjson; charset=utf-8"})
    assert response.json()["appended"] == 100
    assert [record["flight"] for record in await everything(client)] == list(range(100))


async def test_an_arrow_stream_is_appended(client: httpx.AsyncClient) -> None:
    frame = pl.DataFrame({"origin": ["JFK"], "flight": [1], "departed_at": ["2013-01-01T10:44:00Z"]})
    body = io.BytesIO()
    frame.write_ipc_stream(body, compat_level=pl.CompatLevel.oldest())
    response = await client.post(PATH, content=body.getvalue(), headers={"content-type": "application/vnd.apache.arrow.stream"})
    assert response.json()["appended"] == 1, response.text
    assert [record["delay"] for record in await everything(client)] == [None]


async def test_other_media_types_are_refused(client: httpx.AsyncClient, problem: Problem) -> None:
    problem(await client.post(PATH, content=b"a,b", headers={"content-type": "text/csv"}), 415, "unsupported_media_type")


async def test_a_record_without_a_value_is_appended_and_shown(client: httpx.AsyncClient) -> None:
    assert (await client.post(PATH, json={**RECORD, "$op": "delete"})).json()["appended"] == 1
    [record] = await everything(client)
    assert record["$op"] == "delete"
    assert {name for name, value in record.items() if value is None} >= {"flight"}
    assert all(record[name] == RECORD[name] for name in STREAM["key"])


async def test_good_records_are_appended_beside_refused_ones(client: httpx.AsyncClient) -> None:
    answer = (await client.post(PATH, json=[RECORD, {**RECORD, "departed_at": None}, {**RECORD, "flight": "x"}])).json()
    assert answer["appended"] == 1
    assert [(record["index"], record["code"]) for record in answer["rejected"]] == [(1, "event_time_missing"), (2, "wrong_type")]
    page = (await client.get("/v1/streams/departures/rejects")).json()
    assert page["kept"] == {"event_time_missing": 1, "wrong_type": 1}
    assert [item["reason"] for item in page["items"]] == ["wrong_type", "event_time_missing"]
    filtered = (await client.get("/v1/streams/departures/rejects", params={"reason": "wrong_type", "limit": 1})).json()
    assert len(filtered["items"]) == 1


async def test_a_wholly_refused_request_is_an_error_and_keeps_its_rejects(client: httpx.AsyncClient, problem: Problem) -> None:
    body = problem(await client.post(PATH, json=[{**RECORD, "departed_at": None}]), 422, "records_rejected", "/0")
    assert body["errors"][0]["code"] == "event_time_missing"
    assert (await client.get("/v1/streams/departures/rejects")).json()["kept"] == {"event_time_missing": 1}


async def test_a_repeated_idempotency_key_appends_once_and_gets_the_first_answer(client: httpx.AsyncClient) -> None:
    headers = {"idempotency-key": "k1"}
    body = [RECORD, {**RECORD, "flight": "x"}]
    first = await client.post(PATH, json=body, headers=headers)
    second = await client.post(PATH, json=body, headers=headers)
    assert first.status_code == second.status_code == 200
    assert first.json() == second.json()
    assert len(await everything(client)) == 1
    assert len((await client.get("/v1/streams/departures/rejects")).json()["items"]) == 1


async def test_a_refused_request_is_refused_again_under_its_key(client: httpx.AsyncClient, problem: Problem) -> None:
    headers = {"idempotency-key": "k1"}
    bodies = [
        problem(await client.post(PATH, json=[{**RECORD, "departed_at": None}], headers=headers), 422, "records_rejected")
        for _ in range(2)
    ]
    assert bodies[0]["errors"] == bodies[1]["errors"]
    assert len((await client.get("/v1/streams/departures/rejects")).json()["items"]) == 1


async def test_an_idempotency_key_for_another_body_is_refused(client: httpx.AsyncClient, problem: Problem) -> None:
    headers = {"idempotency-key": "k1"}
    await client.post(PATH, json=[RECORD], headers=headers)
    problem(await client.post(PATH, json=[{**RECORD, "flight": 9}], headers=headers), 422, "idempotency_key_reused")
    assert len(await everything(client)) == 1


async def test_an_expired_idempotency_key_is_free_again(client: httpx.AsyncClient, dsn: str) -> None:
    headers = {"idempotency-key": "k1"}
    await client.post(PATH, json=[RECORD], headers=headers)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE log.append_key SET expires_at = now() - interval '1 second'")
    assert (await client.post(PATH, json=[{**RECORD, "flight": 9}], headers=headers)).status_code == 200
    assert len(await everything(client)) == 2


async def test_a_thousand_requests_at_once_are_all_there_in_order_exactly_once(client: httpx.AsyncClient) -> None:
    """64 clients; each sends its next record when the last is answered, and every one twice under one idempotency key."""

    async def send(sender: int) -> None:
        for number in range(16):
            headers = {"idempotency-key": f"{sender}-{number}"}
            record = {**RECORD, "origin": f"C{sender}", "flight": number}
            answers = await asyncio.gather(*(client.post(PATH, json=record, headers=headers) for _ in range(2)))
            assert [answer.status_code for answer in answers] == [200, 200], answers[0].text
            assert answers[0].json() == answers[1].json()

    await asyncio.gather(*(send(sender) for sender in range(64)))
    by_client: dict[str, list[int]] = {}
    for partition in range(2):
        page = (await client.get(PATH, params={"partition": partition, "limit": 10_000})).json()
        assert [record["$offset"] for record in page["records"]] == list(range(page["end_offset"]))
        for record in page["records"]:
            by_client.setdefault(record["origin"], []).append(record["flight"])
    assert by_client == {f"C{sender}": list(range(16)) for sender in range(64)}


async def test_records_go_on_where_the_page_before_ended(client: httpx.AsyncClient) -> None:
    await client.put("/v1/streams/one", json={**STREAM, "connector": {"partitions": 1}})
    for number in range(5):
        await client.post("/v1/streams/one/records", json={**RECORD, "flight": number})
    first = (await client.get("/v1/streams/one/records", params={"limit": 3})).json()
    second = (await client.get("/v1/streams/one/records", params={"limit": 3, "offset": first["next_offset"]})).json()
    assert [record["flight"] for record in (*first["records"], *second["records"])] == list(range(5))
    third = (await client.get("/v1/streams/one/records", params={"offset": second["next_offset"]})).json()
    assert (third["records"], third["next_offset"]) == ([], 5)


async def test_records_come_as_lines_on_request(client: httpx.AsyncClient) -> None:
    answer = await client.post(PATH, json=RECORD)
    partition = answer.json()["offsets"][0]["partition"]
    response = await client.get(PATH, params={"partition": partition}, headers={"accept": "application/x-ndjson"})
    assert response.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line)["flight"] for line in response.text.splitlines()] == [725]
    assert response.headers["slackwater-next-offset"] == "1"


async def test_relations_that_share_a_feed_read_their_own_records(client: httpx.AsyncClient) -> None:
    columns = {"kind": "string", "id": "bigint"}
    for kind in ("bid", "auction"):
        connector = {"type": "log", "feed": "events", "partitions": 1, "where": f"kind = '{kind}'"}
        response = await client.put(f"/v1/streams/{kind}s", json={"key": ["id"], "columns": columns, "connector": connector})
        assert response.status_code == 201, response.text
    for number in range(6):
        await client.post("/v1/streams/bids/records", json={"kind": ("bid", "auction")[number % 2], "id": number})
    assert [record["id"] for record in await everything(client, "bids", 1)] == [0, 2, 4]
    assert [record["id"] for record in await everything(client, "auctions", 1)] == [1, 3, 5]


async def test_an_offset_that_retention_removed_is_gone(client: httpx.AsyncClient, dsn: str, problem: Problem) -> None:
    answer = (await client.post(PATH, json=[RECORD] * 3)).json()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE log.head SET start_offset = 2")
    partition = answer["offsets"][0]["partition"]
    problem(await client.get(PATH, params={"partition": partition, "offset": 1}), 410, "offset_expired")
    assert len((await client.get(PATH, params={"partition": partition})).json()["records"]) == 1


async def test_an_unknown_partition_is_not_found(client: httpx.AsyncClient, problem: Problem) -> None:
    problem(await client.get(PATH, params={"partition": 2}), 404, "partition_not_found")


async def test_big_numbers_keep_their_digits(client: httpx.AsyncClient) -> None:
    definition = {"columns": {"n": "bigint", "d": "decimal(38,10)"}, "connector": {"partitions": 1}}
    await client.put("/v1/streams/numbers", json=definition)
    sent = {"n": "9007199254740993", "d": "1234567890123456789.0123456789"}
    assert (await client.post("/v1/streams/numbers/records", json=sent)).status_code == 200
    response = await client.get("/v1/streams/numbers/records")
    assert '"n":9007199254740993,"d":1234567890123456789.0123456789' in response.text
    texts = await client.get("/v1/streams/numbers/records", params={"bigints": "string"})
    assert texts.json()["records"][0] | sent == texts.json()["records"][0]


async def test_every_type_comes_back_as_it_was_sent(client: httpx.AsyncClient) -> None:
    columns = {
        "a": "boolean", "b": "int", "c": "double", "d": "string", "e": "bytes", "f": "date", "g": "time", "h": "timestamp",
        "i": "array<int>", "j": "map<string,int>", "k": "struct<x:int,y:string>",
    }  # fmt: skip
    record = {
        "a": True, "b": 1, "c": 0.1, "d": 'é"\n', "e": "AP8=", "f": "2013-01-31", "g": "13:45:00", "h": "2013-01-01T12:00:00Z",
        "i": [1, 2], "j": {"one": 1}, "k": {"x": 1, "y": "z"},
    }  # fmt: skip
    await client.put("/v1/streams/typed", json={"columns": columns, "connector": {"partitions": 1}})
    assert (await client.post("/v1/streams/typed/records", json=[record, {}])).json()["appended"] == 2
    full, empty = (await client.get("/v1/streams/typed/records")).json()["records"]
    assert full | record == full
    assert {name: empty[name] for name in columns} == dict.fromkeys(columns)


async def test_appending_goes_on_after_the_relation_was_changed_and_made_anew(client: httpx.AsyncClient) -> None:
    assert (await client.post(PATH, json=RECORD)).status_code == 200
    assert (await client.put("/v1/streams/departures", json={**STREAM, "max_future_skew": "2d"})).status_code == 200
    assert (await client.post(PATH, json=RECORD)).status_code == 200
    assert (await client.delete("/v1/streams/departures")).status_code == 204
    assert (await client.post(PATH, json=RECORD)).status_code == 404
    assert (await client.put("/v1/streams/departures", json=STREAM)).status_code == 201
    assert (await client.post(PATH, json=RECORD)).json()["offsets"][0]["first_offset"] == 0


COUNTED: dict[str, Any] = {"columns": {"t": "bigint", "n": "int"}, "event_time": "t", "connector": {"partitions": 1}}
JUNE_2025_S = 1_748_772_000


@pytest.mark.parametrize("media_type", ["application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream"])
@pytest.mark.parametrize(("unit", "per_second"), [("s", 1), ("ms", 1_000), ("us", 1_000_000), ("ns", 1_000_000_000)])
async def test_event_times_are_read_in_their_unit_and_shown_as_they_came(
    client: httpx.AsyncClient, unit: str, per_second: int, media_type: str
) -> None:
    await client.put("/v1/streams/counted", json={**COUNTED, "event_time_unit": unit})
    frame = pl.DataFrame({"t": [JUNE_2025_S * per_second], "n": [1]}, schema={"t": pl.Int64, "n": pl.Int32})
    arrow = io.BytesIO()
    frame.write_ipc_stream(arrow)
    text = frame.write_ndjson().encode()
    body = arrow.getvalue() if "arrow" in media_type else text
    answer = await client.post("/v1/streams/counted/records", content=body, headers={"content-type": media_type})
    assert (answer.json()["appended"], answer.json()["warnings"]) == (1, [])
    [record] = await everything(client, "counted", 1)
    assert record == {"$offset": 0, "$event_time_ms": JUNE_2025_S * 1_000, "t": JUNE_2025_S * per_second, "n": 1}


@pytest.mark.parametrize(
    ("times", "is_warned"),
    [
        ([JUNE_2025_S], True),
        ([JUNE_2025_S, 5, None], True),
        ([631_151_999_999], True),
        ([631_152_000_000], False),
        ([JUNE_2025_S, JUNE_2025_S * 1_000], False),
        ([], False),
    ],
)
async def test_an_append_whose_event_times_all_lie_before_1990_is_answered_with_a_warning(
    client: httpx.AsyncClient, times: list[int | None], is_warned: bool
) -> None:
    await client.put("/v1/streams/counted", json=COUNTED)
    answer = (await client.post("/v1/streams/counted/records", json=[{"t": t} for t in times])).json()
    assert [(one["code"], one["pointer"]) for one in answer["warnings"]] == (
        [("event_times_before_1990", "/event_time_unit")] if is_warned else []
    )
    for warning in answer["warnings"]:
        assert "column 't' are read as ms since 1970" in warning["detail"]
        assert "event_time_unit" in warning["cure"]


async def test_a_warning_is_repeated_with_the_answer_that_an_idempotency_key_repeats(client: httpx.AsyncClient) -> None:
    await client.put("/v1/streams/counted", json=COUNTED)
    answers = [
        await client.post("/v1/streams/counted/records", json=[{"t": 5}], headers={"idempotency-key": "once"}) for _ in range(2)
    ]
    assert answers[0].json()["warnings"] != []
    assert answers[1].json() == answers[0].json()


@pytest.mark.parametrize(
    ("definition", "record", "pointer"),
    [
        ({"columns": {"t": "timestamp"}, "event_time": "t"}, {"t": JUNE_2025_S}, "/event_time"),
        ({"columns": {"t": "string"}, "event_time": "t", "event_time_format": "%s"}, {"t": "5"}, "/event_time_format"),
        ({"columns": {"t": "int"}, "event_time": "t", "event_time_unit": "s"}, {"t": 5}, "/event_time_unit"),
        ({"columns": {"t": "int"}}, {"t": 5, "$event_time_ms": JUNE_2025_S}, "/event_time"),
    ],
)
async def test_a_warning_points_to_what_says_how_event_times_are_read(
    client: httpx.AsyncClient, definition: dict[str, Any], record: dict[str, Any], pointer: str
) -> None:
    put = await client.put("/v1/streams/counted", json=definition)
    assert put.status_code == 201, put.text
    answer = (await client.post("/v1/streams/counted/records", json=record)).json()
    assert [one["pointer"] for one in answer["warnings"]] == [pointer], answer

"""GET …/explain on committed facts: each answer, from records that were posted and batches that the sink committed."""

from __future__ import annotations

from typing import Any

import httpx
import polars as pl
import psycopg
import pytest

from tests.api.committed import commit, emitted
from tests.api.conftest import JOIN, TABLE, WINDOWS, Problem
from tests.late_frames import late_frame

pytestmark = pytest.mark.usefixtures("sources")
H = 3_600_000
AT = 1_357_041_600_000  # 2013-01-01T12:00:00Z
NOON = "2013-01-01T12:00:00Z"
TASKS = 4
Answer = dict[str, Any]


def departure(at: str = NOON, origin: str = "JFK", flight: int = 1) -> dict[str, Any]:
    return {"origin": origin, "flight": flight, "delay": 2.5, "departed_at": at}


async def post(client: httpx.AsyncClient, path: str, *records: dict[str, Any]) -> tuple[int, int]:
    """Append records; returns partition and offset of the first."""
    response = await client.post(f"/v1/{path}/records", json=list(records))
    assert response.status_code in (200, 201, 207), response.text
    ranges = response.json()["offsets"]
    return (ranges[0]["partition"], ranges[0]["first_offset"]) if ranges else (0, 0)


async def ask(client: httpx.AsyncClient, query: str = "joined", **params: Any) -> Answer:
    response = await client.get(f"/v1/queries/{query}/explain", params={"key": "JFK", "at": NOON, **params})
    assert response.status_code == 200, response.text
    return response.json()  # type: ignore[no-any-return]


def clocks(stream: int, table: int | None = None, name: str = "w") -> list[Any]:
    """The times with a batch."""
    own = {name: stream} if table is None else {name: stream, f"{name}.table": table}
    return [(0, task, emitted(own)) for task in range(TASKS)]


READ_ALL = {"log:departures": {0: 99, 1: 99}, "log:weather": {0: 99}}


@pytest.fixture
async def joined(client: httpx.AsyncClient, sources: None) -> None:
    assert (await client.post("/v1/queries", json=JOIN)).status_code == 201


@pytest.fixture
async def delays(client: httpx.AsyncClient, sources: None) -> None:
    assert (await client.post("/v1/queries", json=WINDOWS)).status_code == 201


async def test_a_record_behind_the_position_is_not_read_yet(client: httpx.AsyncClient, dsn: str, joined: None) -> None:
    partition, offset = await post(client, "streams/departures", departure())
    answer = (await ask(client))["answer"]
    assert (answer["code"], answer["blocking"]) == ("not_read_yet", True)
    assert answer["place"] == {"partition": partition, "offset": offset, "part": None}
    commit(dsn, "joined", clocks(AT), {"log:departures": {partition: offset + 1}})
    assert (await ask(client))["answer"]["code"] != "not_read_yet"


async def test_a_rejected_record_is_found_by_its_key(client: httpx.AsyncClient, joined: None) -> None:
    refused = await client.post("/v1/streams/departures/records", json=[{**departure(), "delay": "much"}])
    assert refused.status_code == 422
    answer = (await ask(client))["answer"]
    assert (answer["code"], answer["reason"]) == ("rejected", "wrong_type")


async def test_a_record_waits_for_the_grace_of_its_own_task(client: httpx.AsyncClient, dsn: str, joined: None) -> None:
    await post(client, "streams/departures", departure())
    commit(dsn, "joined", clocks(AT + H - 1, AT), READ_ALL)
    body = await ask(client)
    answer = body["answer"]
    assert (answer["code"], answer["now_ms"], answer["until_ms"], answer["operator"]) == (
        "buffered_until",
        AT + H - 1,
        AT + H,
        "w",
    )
    assert answer["task"] in range(TASKS)
    assert [step["kind"] for step in body["steps"]] == ["source", "stream_table_join"]
    assert body["key"] == {"departures.origin": "JFK"}
    commit(dsn, "joined", [(0, answer["task"], emitted({"w": AT + H, "w.table": AT}))])
    assert (await ask(client))["answer"]["code"] == "no_version"


async def test_the_version_that_answers_is_named_with_its_validity(client: httpx.AsyncClient, dsn: str, joined: None) -> None:
    await post(client, "streams/departures", departure())
    for hour in ("10", "11", "13"):
        await post(client, "tables/weather", {"origin": "JFK", "temp": 1.0, "observed_at": f"2013-01-01T{hour}:00:00Z"})
    await post(client, "tables/weather", {"origin": "LGA", "temp": 1.0, "observed_at": NOON})
    commit(dsn, "joined", clocks(AT + 2 * H, AT + H), READ_ALL)
    answer = (await ask(client))["answer"]
    assert (answer["code"], answer["version_ms"], answer["next_version_ms"]) == ("joined_version", AT - H, AT + H)
    assert answer["place"] == {"partition": 0, "offset": 1, "part": None}


async def test_a_version_that_is_not_read_does_not_answer_and_is_mentioned(
    client: httpx.AsyncClient, dsn: str, joined: None
) -> None:
    await post(client, "streams/departures", departure())
    await post(client, "tables/weather", {"origin": "JFK", "temp": 1.0, "observed_at": "2013-01-01T10:00:00Z"})
    await post(client, "tables/weather", {"origin": "JFK", "temp": 1.0, "observed_at": "2013-01-01T11:00:00Z"})
    commit(dsn, "joined", clocks(AT + 2 * H, AT), {**READ_ALL, "log:weather": {0: 1}})
    answer = (await ask(client))["answer"]
    assert answer["version_ms"] == AT - 2 * H
    assert "2013-01-01T11:00:00Z is in the feed and not read yet" in answer["sentence"]


async def test_a_put_that_was_refused_is_no_version(client: httpx.AsyncClient, dsn: str, joined: None) -> None:
    await post(client, "streams/departures", departure())
    _, offset = await post(client, "tables/weather", {"origin": "JFK", "temp": 1.0, "observed_at": "2013-01-01T11:00:00Z"})
    late = late_row("w", "table_history_expired", AT - H, '{"w.origin":"JFK","w.temp":1.0}', offset)
    commit(dsn, "joined", [*clocks(AT + 2 * H, AT), (0, 0, emitted(late=late))], READ_ALL)
    assert (await ask(client))["answer"]["code"] == "no_version"


async def test_of_a_table_whose_conflicts_event_time_decides_the_latest_by_event_time_answers(
    client: httpx.AsyncClient, dsn: str
) -> None:
    table = {**TABLE, "versioned": None, "conflict": "latest_event_time"}
    assert (await client.put("/v1/tables/weather", json=table)).status_code == 200
    body = {**JOIN, "joins": [{**JOIN["joins"][0], "grace": None}]}
    assert (await client.post("/v1/queries", json=body)).status_code == 201
    await post(client, "streams/departures", departure())
    for hour in ("11", "10"):
        await post(client, "tables/weather", {"origin": "JFK", "temp": 1.0, "observed_at": f"2013-01-01T{hour}:00:00Z"})
    commit(dsn, "joined", clocks(AT, AT), READ_ALL)
    answer = (await ask(client))["answer"]
    assert (answer["version_ms"], answer["place"]) == (AT - H, {"partition": 0, "offset": 0, "part": None})


async def test_a_deleted_row_and_no_row_are_told_apart(client: httpx.AsyncClient, dsn: str, joined: None) -> None:
    await post(client, "streams/departures", departure(), departure(origin="LGA"))
    await post(client, "tables/weather", {"$op": "delete", "origin": "JFK", "observed_at": "2013-01-01T11:00:00Z"})
    commit(dsn, "joined", clocks(AT + 2 * H, AT), READ_ALL)
    assert (await ask(client))["answer"]["reason"] == "deleted"
    assert (await ask(client, key="LGA"))["answer"]["reason"] == "no_version"


async def test_expired_history_is_told_apart_from_none(client: httpx.AsyncClient, dsn: str, joined: None) -> None:
    await post(client, "streams/departures", departure())
    await post(client, "tables/weather", {"origin": "JFK", "temp": 1.0, "observed_at": "2013-01-04T00:00:00Z"})
    commit(dsn, "joined", clocks(AT + 80 * H, AT + 60 * H), READ_ALL)
    answer = (await ask(client))["answer"]
    assert (answer["code"], answer["reason"]) == ("expired", "history_expired")


def late_row(name: str, reason: str, ts: int, record: str, offset: int = 0) -> pl.DataFrame:
    return late_frame([(name, reason, ts, ts + 9 * H, offset, record)])


async def test_a_kept_late_record_is_late(client: httpx.AsyncClient, dsn: str, joined: None) -> None:
    await post(client, "streams/departures", departure())
    late = pl.concat(
        [
            late_row("w", "late_dropped", AT, '{"departures.origin":"JFK","departures.flight":1}'),
            late_row("w", "late_dropped", AT, '{"departures.origin":"LGA","departures.flight":1}'),
        ]
    )
    commit(dsn, "joined", [*clocks(AT + 9 * H, AT), (0, 0, emitted({"w": AT + 9 * H}, late=late))], READ_ALL)
    answer = (await ask(client))["answer"]
    assert (answer["code"], answer["reason"], answer["now_ms"]) == ("late", "late_dropped", AT + 9 * H)
    assert (await ask(client, key="EWR"))["answer"]["code"] != "late_dropped"


async def test_what_nobody_has_sent_yet_would_be_late(client: httpx.AsyncClient, dsn: str, delays: None) -> None:
    commit(dsn, "delays", clocks(AT + 9 * H, name="window"), READ_ALL)
    body = await ask(client, "delays")
    assert [step["code"] for step in body["steps"]] == ["no_record", "late"]
    assert (body["answer"]["code"], body["nearest"]) == ("no_record", [])
    assert "would be late" in body["steps"][-1]["sentence"]


async def test_a_time_without_a_record_is_answered_with_the_nearest_ones_not_with_another_times_reject(
    client: httpx.AsyncClient, dsn: str, joined: None
) -> None:
    refused = await client.post("/v1/streams/departures/records", json=[{**departure(), "delay": "much"}])
    assert refused.status_code == 422
    places = [await post(client, "streams/departures", departure(f"2013-01-01T{hour:02}:00:00Z")) for hour in (9, 11, 15, 18)]
    await post(client, "streams/departures", departure("2013-01-01T14:00:00Z", "LGA"))
    commit(dsn, "joined", clocks(AT + 9 * H, AT), READ_ALL)
    body = await ask(client, at="2013-01-01T14:00:00Z")
    near = [
        {"event_time_ms": AT + hours * H, "place": {"partition": at[0], "offset": at[1], "part": None}, "is_read": True}
        for hours, at in ((-1, places[1]), (3, places[2]))
    ]
    assert (body["answer"]["code"], body["nearest"]) == ("no_record", near)
    assert "2013-01-01T11:00:00Z" in body["answer"]["sentence"]
    assert (await ask(client))["answer"]["code"] == "rejected"


async def test_a_record_that_retention_may_have_removed_is_said_to_be_perhaps_removed(
    client: httpx.AsyncClient, dsn: str, joined: None
) -> None:
    await post(client, "streams/departures", departure("2013-01-01T09:00:00Z"))
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE log.head SET start_offset = next_offset WHERE next_offset > 0")
        connection.execute("DELETE FROM log.batch")
    commit(dsn, "joined", clocks(AT, AT), READ_ALL)
    answer = (await ask(client))["answer"]
    assert (answer["code"], answer["reason"]) == ("no_record", "removed")


async def test_an_open_window_closes_at_a_stream_time_and_then_is_final(
    client: httpx.AsyncClient, dsn: str, delays: None
) -> None:
    await post(client, "streams/departures", departure("2013-01-01T12:20:00Z"))
    commit(dsn, "delays", clocks(AT + H, name="window"), READ_ALL)
    answer = (await ask(client, "delays"))["answer"]
    assert (answer["code"], answer["now_ms"], answer["until_ms"]) == ("window_open_until", AT + H, AT + H + H // 2)
    bounds = pl.Series([AT, AT + H]).cast(pl.Datetime("ms", "UTC")).cast(pl.Datetime("us", "UTC"))
    own = {"flights": [1], "mean_delay": [2.5]}
    row = pl.DataFrame(
        {"_ts": [AT + H // 3], "_op": [0], "origin": ["JFK"], "window_start": bounds[:1], "window_end": bounds[1:], **own},
        schema_overrides={"_op": pl.Int8},
    )  # fmt: skip
    commit(dsn, "delays", [*clocks(AT + 2 * H, name="window"), (0, 0, emitted({"window": AT + 2 * H}, changes=row))])
    answer = (await ask(client, "delays"))["answer"]
    assert (answer["code"], answer["version_ms"]) == ("final", AT + H // 3)


async def test_one_record_is_asked_for_by_its_place(client: httpx.AsyncClient, dsn: str, joined: None) -> None:
    partition, offset = await post(client, "streams/departures", departure("2013-01-01T09:00:00Z", "LGA"))
    commit(dsn, "joined", clocks(AT, AT), READ_ALL)
    response = await client.get("/v1/queries/joined/explain", params={"partition": partition, "offset": offset})
    answer = response.json()["answer"]
    assert (answer["code"], answer["version_ms"]) == ("no_version", None)
    assert "2013-01-01T09:00:00Z" in answer["sentence"]
    assert response.json()["at_ms"] == 1_357_030_800_000  # the record's own
    response = await client.get("/v1/queries/joined/explain", params={"partition": partition, "offset": 50})
    assert response.json()["answer"]["code"] == "unknown"


async def test_a_feed_of_files_is_not_searched_and_says_so(client: httpx.AsyncClient, dsn: str) -> None:
    stream = {
        "key": ["origin"],
        "columns": {"origin": "string"},
        "connector": {"type": "files", "path": "/data/some", "format": "ndjson"},
    }
    assert (await client.put("/v1/streams/filed", json=stream)).status_code == 201
    query = {
        "name": "filed_weather", "from": {"stream": "filed"},
        "joins": [{"table": "weather", "as": "w", "type": "left", "on": "filed.origin = w.origin"}],
        "select": {"origin": "filed.origin", "temp": "w.temp"}, "into": {"stream": "filed_weather"},
    }  # fmt: skip
    assert (await client.post("/v1/queries", json=query)).status_code == 201
    body = await ask(client, "filed_weather")
    assert (body["steps"][0]["code"], "cannot be searched" in body["steps"][0]["sentence"]) == ("unknown", True)


async def test_the_key_can_be_named_by_a_column_of_the_result(client: httpx.AsyncClient, dsn: str, delays: None) -> None:
    named = await client.get("/v1/queries/delays/explain", params={"key.origin": "JFK", "at": NOON})
    assert named.json() == await ask(client, "delays")


@pytest.mark.parametrize(
    ("params", "code", "pointer"),
    [
        ({"at": NOON}, "bad_parameter", "?key"),
        ({"key": "JFK"}, "bad_parameter", "?at"),
        ({"key": "JFK", "at": "noon"}, "bad_parameter", "?at"),
        ({"key.planet": "earth", "at": NOON}, "unknown_parameter", "?key.planet"),
        ({"key.flight": "many", "at": NOON}, "bad_parameter", "?key.flight"),
        ({"key": "JFK", "key.origin": "LGA", "at": NOON}, "bad_parameter", "?key.origin"),
        ({"partition": "0"}, "bad_parameter", "?offset"),
        ({"offset": "0"}, "bad_parameter", "?partition"),
        ({"when": NOON}, "unknown_parameter", "?when"),
        ({"key": "JFK", "at": "2013"}, "bad_parameter", "?at"),
        ({"key": "JFK", "at": "1357041600"}, "bad_parameter", "?at"),
        ({"key": "JFK", "at": "-1"}, "bad_parameter", "?at"),
        ({"key": "JFK", "at": "2013-01-01T12:00:00"}, "bad_parameter", "?at"),
        ({"key": "\0", "at": NOON}, "bad_parameter", "?key"),
        ({"key": ["JFK", "LGA"], "at": NOON}, "bad_parameter", "?key"),
        ({"key": "JFK", "at": [NOON, NOON]}, "bad_parameter", "?at"),
        ({"partition": "0", "offset": "0", "at": NOON}, "bad_parameter", "?offset"),
        ({"partition": "0", "offset": "0", "key": "JFK"}, "bad_parameter", "?offset"),
        ({"partition": "7", "offset": "0"}, "bad_parameter", "?partition"),
    ],
)
async def test_questions_that_say_too_little_or_too_much_are_refused(
    client: httpx.AsyncClient, problem: Problem, joined: None, params: dict[str, Any], code: str, pointer: str
) -> None:
    problem(await client.get("/v1/queries/joined/explain", params=params), 400, code, pointer)


async def test_a_composite_key_is_asked_for_column_by_column(client: httpx.AsyncClient, problem: Problem) -> None:
    query = {**WINDOWS, "group_by": ["origin", "flight"], "name": "pairs", "into": {"table": "pairs"}}
    stream = {"columns": {"origin": "string", "flight": "bigint", "departed_at": "timestamp"}, "event_time": "departed_at"}
    assert (await client.put("/v1/streams/keyless", json=stream)).status_code == 201
    query = {**query, "from": {"stream": "keyless"}, "aggregate": {"flights": "count(*)"}}
    assert (await client.post("/v1/queries", json=query)).status_code == 201
    body = problem(await client.get("/v1/queries/pairs/explain", params={"key": "JFK", "at": NOON}), 400, "composite_key")
    assert "key.origin=…&key.flight=…" in body["detail"]


async def test_an_answer_and_a_refusal_say_what_the_key_is(client: httpx.AsyncClient, problem: Problem, joined: None) -> None:
    assert (await ask(client))["key_columns"] == ["departures.origin"]
    body = problem(await client.get("/v1/queries/joined/explain", params={"at": NOON}), 400, "bad_parameter", "?key")
    assert "`key=…` is a value of departures.origin" in body["detail"]
    body = problem(
        await client.get("/v1/queries/joined/explain", params={"key": "JFK", "at": "1357041600"}), 400, "bad_parameter"
    )
    assert "would be 1970-01-16T16:57:21.600Z" in body["detail"]


@pytest.mark.parametrize(
    ("params", "pointers"),
    [
        ({"key.orign": "JFK", "key.flight": "many", "at": "noon"}, ["?key.orign", "?key.flight", "?at"]),
        ({"partition": 0, "key.flight": "many"}, ["?offset", "?key.flight"]),
    ],
)
async def test_all_wrong_parameters_are_reported_at_once(
    client: httpx.AsyncClient, joined: None, params: dict[str, Any], pointers: list[str]
) -> None:
    answer = await client.get("/v1/queries/joined/explain", params=params)
    assert [each["pointer"] for each in answer.json()["errors"]] == pointers


async def test_an_unknown_query_cannot_be_explained(client: httpx.AsyncClient, problem: Problem) -> None:
    problem(await client.get("/v1/queries/nowhere/explain", params={"key": "JFK", "at": NOON}), 404, "query_not_found")


async def test_every_answer_leaves_the_database_as_it_was(client: httpx.AsyncClient, dsn: str, joined: None) -> None:
    def counted() -> list[Any]:
        with psycopg.connect(dsn) as connection:
            return connection.execute("SELECT xmin, version FROM slackwater.query").fetchall()

    before = counted()
    await ask(client)
    assert counted() == before

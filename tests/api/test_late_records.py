"""Late records: browsing them by what they are, and handing them to the query again."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import polars as pl
import psycopg
import pytest

from app.catalog.stored.queries import sweep_late_records
from app.upkeep.retention import RetentionLimits, trim_once
from tests.api.committed import commit, emitted
from tests.api.conftest import JOIN, Problem
from tests.derived_log import read_feed
from tests.late_frames import late_frame

pytestmark = pytest.mark.usefixtures("query")
PATH = "/v1/queries/joined/late-records"
REPLAY = f"{PATH}/replay"
DIVERTING = {**JOIN, "joins": [{**JOIN["joins"][0], "late": "divert"}]}  # type: ignore[index]


def record(origin: str, flight: int) -> str:
    return f'{{"departures.origin":"{origin}","departures.flight":{flight}}}'


ROWS = [
    ("w", "late_diverted", 1_000, record("JFK", 1)),
    ("w", "late_diverted", 2_000, record("LGA", 2)),
    ("w", "late_dropped", 3_000, record("JFK", 3)),
    ("window", "window_closed", 4_000, record("JFK", 4)),
    ("w", "table_history_expired", 5_000, '{"w.origin":"JFK","w.temp":1.5}'),
    ("w", "late_diverted", 6_000, '{"departures.origin":"EWR","departures.fl'),
]


@pytest.fixture
async def query(client: httpx.AsyncClient, sources: None, dsn: str) -> None:
    assert (await client.post("/v1/queries", json=DIVERTING)).status_code == 201
    late = late_frame([(name, why, ts, ts + 9, 0, text) for name, why, ts, text in ROWS])
    commit(dsn, "joined", [(0, 0, emitted({"w": 9_000}, late=late))])
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO log.counter SELECT id, input, reason, 7 FROM slackwater.query, "
            "(VALUES ('w', 'late_diverted'), ('w', 'late_joined'), ('window', 'window_closed')) AS counted (input, reason)"
        )


async def browse(client: httpx.AsyncClient, **params: Any) -> list[int]:
    """Return the event times of the late records found, in order."""
    response = await client.get(PATH, params=params)
    assert response.status_code == 200, response.text
    return [item["event_time_ms"] for item in response.json()["items"]]


async def ids(client: httpx.AsyncClient) -> dict[int, int]:
    """Return the id of each late record by event time."""
    return {item["event_time_ms"]: item["id"] for item in (await client.get(PATH)).json()["items"]}


def fed(dsn: str) -> list[tuple[Any, ...]]:
    """Return what went into the query's replay feed."""
    with psycopg.connect(dsn) as connection:
        names = connection.execute("SELECT name FROM log.feed WHERE name LIKE 'replay:%'").fetchall()
        frames = [frame for (name,) in names for _, frame in read_feed(connection, name)]
    return [row for frame in frames for row in frame.select("_ts", "stage", "operator", "record").rows()]


@pytest.mark.parametrize(
    ("params", "times"),
    [
        ({}, [6_000, 5_000, 4_000, 3_000, 2_000, 1_000]),
        ({"order": "asc"}, [1_000, 2_000, 3_000, 4_000, 5_000, 6_000]),
        ({"reason": "late_diverted"}, [6_000, 2_000, 1_000]),
        ({"input": "window"}, [4_000]),
        ({"from": "2000", "to": "4000"}, [3_000, 2_000]),
        ({"from": "1970-01-01T00:00:05Z"}, [6_000, 5_000]),
        ({"key.origin": "JFK"}, [5_000, 4_000, 3_000, 1_000]),
        ({"key.departures.origin": "JFK"}, [4_000, 3_000, 1_000]),
        ({"key.origin": "JFK", "key.flight": "3"}, [3_000]),
        ({"key.origin": "J"}, []),
        ({"key.origin": "EWR"}, [6_000]),
    ],
)
async def test_late_records_are_found_by_what_they_are(
    client: httpx.AsyncClient, params: dict[str, str], times: list[int]
) -> None:
    assert await browse(client, **params) == times


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_pages_go_on_in_either_order(client: httpx.AsyncClient, order: str) -> None:
    page = (await client.get(PATH, params={"order": order, "limit": 4})).json()
    rest = (await client.get(PATH, params={"order": order, "limit": 4, "cursor": page["next"]})).json()
    found = [item["event_time_ms"] for item in (*page["items"], *rest["items"])]
    assert found == await browse(client, order=order)


async def test_counters_follow_reason_and_input(client: httpx.AsyncClient) -> None:
    async def counted(**params: str) -> list[str]:
        return [each["reason"] for each in (await client.get(PATH, params=params)).json()["counters"]]

    assert await counted() == ["late_diverted", "late_joined", "window_closed"]
    assert await counted(input="w") == ["late_diverted", "late_joined"]
    assert await counted(input="w", reason="late_joined") == ["late_joined"]


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"key.planet": "earth"}, "unknown_parameter"),
        ({"key.flight": "many"}, "bad_parameter"),
        ({"key.departed_at": "0001-01-01T00:00:00+01:00"}, "bad_parameter"),
        ({"from": "yesterday"}, "bad_parameter"),
        ({"order": "random"}, "bad_parameter"),
        ({"input": "\0"}, "bad_parameter"),
        ({"key.origin": "\0"}, "bad_parameter"),
        ({"by": "me"}, "unknown_parameter"),
    ],
)
async def test_filters_that_mean_nothing_are_refused(
    client: httpx.AsyncClient, problem: Problem, params: dict[str, str], code: str
) -> None:
    problem(await client.get(PATH, params=params), 400, code)


async def test_all_filters_that_mean_nothing_are_reported_at_once(client: httpx.AsyncClient) -> None:
    params = {"from": "yesterday", "to": "today", "key.planet": "earth", "key.flight": "many"}
    errors = (await client.get(PATH, params=params)).json()["errors"]
    assert [each["pointer"] for each in errors] == ["?from", "?to", "?key.planet", "?key.flight"]


async def test_chosen_records_are_handed_over_once_and_marked(client: httpx.AsyncClient, dsn: str) -> None:
    numbers = await ids(client)
    response = await client.post(REPLAY, json={"ids": [numbers[1_000], numbers[3_000]]})
    assert response.status_code == 202, response.text
    body = response.json()
    assert (body["accepted"], body["already_replayed"], body["refused"]) == (2, 0, [])
    assert list(body["position"].values()) == [{"0": 2}]
    assert fed(dsn) == [(1_000, 0, "w", record("JFK", 1)), (3_000, 0, "w", record("JFK", 3))]
    items = {item["event_time_ms"]: item for item in (await client.get(PATH)).json()["items"]}
    assert items[1_000]["replay_id"] == items[3_000]["replay_id"] == body["replay_id"]
    assert items[2_000]["replayed_at"] is None

    again = (await client.post(REPLAY, json={"ids": [numbers[1_000]]})).json()
    assert (again["accepted"], again["already_replayed"], again["replay_id"]) == (0, 1, None)
    assert len(fed(dsn)) == 2
    asked = (await client.post(REPLAY, json={"ids": [numbers[1_000]], "again": True})).json()
    assert (asked["accepted"], len(fed(dsn))) == (1, 3)


async def test_keys_that_the_plan_computed_are_kept_but_not_shown(client: httpx.AsyncClient, dsn: str) -> None:
    written = '{"departures.origin":"JFK","w.$on0":"jfk","p.$key0":5,"departures.flight":9}'
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE log.late_record SET record = %s WHERE event_time_ms = 1000", (written,))
    (item,) = [item for item in (await client.get(PATH)).json()["items"] if item["event_time_ms"] == 1_000]
    assert item["record"] == {"departures.origin": "JFK", "departures.flight": 9}
    assert (await client.post(REPLAY, json={"ids": [item["id"]]})).status_code == 202
    assert fed(dsn) == [(1_000, 0, "w", written)]


async def test_replays_that_were_taken_in_leave_after_a_while(client: httpx.AsyncClient, dsn: str) -> None:
    numbers = await ids(client)
    for event_time_ms in (1_000, 3_000):
        assert (await client.post(REPLAY, json={"ids": [numbers[event_time_ms]]})).status_code == 202
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE log.batch SET appended_at = now() - interval '2 days'")
        assert trim_once(dsn, RetentionLimits(86_400_000)) == 0, "not yet taken in"
        position = "jsonb_build_object('replay:' || query_id, jsonb_build_object('0', 1))"
        connection.execute(f"UPDATE log.commit SET position = {position}")
        assert trim_once(dsn, RetentionLimits(3 * 86_400_000)) == 0, "not yet old enough"
        assert trim_once(dsn, RetentionLimits(86_400_000)) == 1
    assert [row[0] for row in fed(dsn)] == [3_000]


async def test_a_filter_takes_what_can_be_replayed_and_tells_the_rest(client: httpx.AsyncClient, dsn: str) -> None:
    body = (await client.post(REPLAY, json={"filter": {"key": {"origin": "JFK"}}})).json()
    assert (body["accepted"], body["refused_count"], body["more"]) == (2, 2, False)
    assert [each["code"] for each in body["refused"]] == ["replay_not_possible", "replay_not_possible"]
    assert [row[0] for row in fed(dsn)] == [1_000, 3_000]
    rest = (await client.post(REPLAY, json={"filter": {"reason": "late_diverted", "from": 0, "to": "6000"}})).json()
    assert (rest["accepted"], [row[0] for row in fed(dsn)]) == (1, [1_000, 3_000, 2_000])


async def test_two_equal_requests_at_once_hand_each_record_over_once(client: httpx.AsyncClient, dsn: str) -> None:
    wanted = {"filter": {"reason": "late_dropped"}}
    answers = await asyncio.gather(*(client.post(REPLAY, json=wanted) for _ in range(4)))
    assert sorted(answer.json()["accepted"] for answer in answers) == [0, 0, 0, 1]
    assert len(fed(dsn)) == 1


@pytest.mark.parametrize(
    ("ts", "code", "words"),
    [
        (4_000, "replay_not_possible", "its result is final"),
        (5_000, "replay_not_possible", "not stored any more"),
        (6_000, "record_cut", "too long"),
    ],
)
async def test_what_cannot_be_replayed_says_why(
    client: httpx.AsyncClient, problem: Problem, dsn: str, ts: int, code: str, words: str
) -> None:
    numbers = await ids(client)
    body = problem(await client.post(REPLAY, json={"ids": [numbers[1_000], numbers[ts]]}), 409, "replay_not_possible", "/ids/1")
    assert (body["errors"][0]["code"], words in body["detail"]) == (code, True)
    assert fed(dsn) == [], "all or none of those that are named"


async def test_a_filter_that_leaves_nothing_is_refused(client: httpx.AsyncClient, problem: Problem) -> None:
    problem(await client.post(REPLAY, json={"filter": {"reason": "window_closed"}}), 409, "replay_not_possible", "/filter")


async def test_an_id_that_is_not_there_is_named(client: httpx.AsyncClient, problem: Problem, dsn: str) -> None:
    numbers = await ids(client)
    answer = await client.post(REPLAY, json={"ids": [numbers[1_000], 999_999]})
    problem(answer, 404, "late_record_not_found", "/ids/1")
    assert fed(dsn) == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"ids": []},
        {"ids": [1], "filter": {"reason": "x"}},
        {"ids": [0]},
        {"filter": {"from": "noon"}},
        {"all": True},
    ],
)
async def test_bodies_that_say_too_little_or_too_much_are_refused(
    client: httpx.AsyncClient, problem: Problem, body: dict[str, Any]
) -> None:
    problem(await client.post(REPLAY, json=body), 422, "unknown_field" if "all" in body else "invalid_value")


async def test_the_empty_filter_means_all(client: httpx.AsyncClient, dsn: str) -> None:
    everything = (await client.post(REPLAY, json={"filter": {}})).json()
    assert everything["accepted"] > 0
    same = (await client.post(REPLAY, json={"filter": {"key": {}}, "again": True})).json()
    assert same["accepted"] == everything["accepted"], "the same, said in another way"


@pytest.mark.parametrize(
    ("body", "pointer", "word"),
    [
        ({}, "", '{"filter": {}}'),
        ({"ids": [1], "filter": {}}, "", "not both"),
        ({"ids": [1, 0]}, "/ids/1", "greater than 0"),
        ({"filter": {"from": "noon"}}, "/filter/from", "RFC 3339"),
        ({"filter": {"to": -1}}, "/filter/to", "RFC 3339"),
    ],
)
async def test_a_refused_replay_names_the_field_and_the_way_out(
    client: httpx.AsyncClient, problem: Problem, body: dict[str, Any], pointer: str, word: str
) -> None:
    assert word in problem(await client.post(REPLAY, json=body), 422, "invalid_value", pointer)["detail"]


async def test_an_unknown_column_of_a_filter_is_named(client: httpx.AsyncClient, problem: Problem) -> None:
    answer = await client.post(REPLAY, json={"filter": {"key": {"planet": "earth"}}})
    problem(answer, 400, "unknown_column", "/filter/key/planet")


async def test_a_new_beginning_and_a_deletion_forget_what_was_to_be_replayed(client: httpx.AsyncClient, dsn: str) -> None:
    await client.post(REPLAY, json={"filter": {"reason": "late_dropped"}})
    assert (await client.put("/v1/queries/joined?state=discard", json={**JOIN, "start": "latest"})).status_code == 200
    assert (fed(dsn), await browse(client)) == ([], [])


async def test_the_late_records_of_an_unknown_query_cannot_be_replayed(client: httpx.AsyncClient, problem: Problem) -> None:
    problem(await client.post("/v1/queries/nowhere/late-records/replay", json={"ids": [1]}), 404, "query_not_found")


async def test_a_replayed_result_is_marked_and_others_are_not(client: httpx.AsyncClient, dsn: str) -> None:
    def joined(ts: int) -> pl.DataFrame:
        row = {"_ts": [ts], "_op": [0], "origin": ["JFK"], "flight": [1], "temp": [None]}
        return pl.DataFrame(row, schema_overrides={"_op": pl.Int8, "temp": pl.Float64})

    made = emitted({"w": 9_000}, changes=joined(8_000))
    commit(dsn, "joined", [(0, 0, made._replace(emission=replace(made.emission, replayed=joined(1_000))))])
    found = []
    for partition in range(8):
        response = await client.get("/v1/streams/joined/records", params={"partition": partition})
        found += response.json().get("records", [])
    assert sorted((each["$event_time_ms"], each.get("$replayed")) for each in found) == [(1_000, True), (8_000, None)]
    changes = (await client.get("/v1/streams/joined/changes", params={"from": "earliest"})).json()["changes"]
    assert sorted((each["event_time_ms"], each.get("$replayed")) for each in changes) == [(1_000, True), (8_000, None)]


async def test_the_late_records_of_a_deleted_query_go_in_steps_and_not_with_the_edit(client: httpx.AsyncClient, dsn: str) -> None:
    counted = "SELECT count(*) FROM log.late_record"
    with psycopg.connect(dsn, autocommit=True) as connection:
        kept = connection.execute(counted).fetchone()
        assert kept is not None
        assert kept[0] > 2
        sweep_late_records(connection, step_rows=1)
        assert connection.execute(counted).fetchone() == kept, "its query is there"
        assert (await client.delete(PATH.removesuffix("/late-records"))).status_code == 204
        assert connection.execute(counted).fetchone() == kept
        connection.execute("DELETE FROM slackwater.query")  # as a driver does that purges it
        sweep_late_records(connection, step_rows=1)
        assert connection.execute(counted).fetchone() == (0,)

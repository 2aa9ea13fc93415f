"""GET …/lateness: the histogram that commits left, and advice per setting."""

from __future__ import annotations

import httpx
import pytest

from tests.api.committed import commit, emitted
from tests.api.conftest import JOIN, WINDOWS, Problem

pytestmark = pytest.mark.usefixtures("sources")
PATH = "/v1/queries/joined/lateness"
BATCH = {"departures": {"count": 10, "max_ms": 7_200_000, "buckets": {"0": 7, "1000": 2, "7200000": 1, "3600000": 0}}}
NEXT = {"departures": {"count": 10, "max_ms": 900, "buckets": {"0": 8, "1000": 2}}}


@pytest.fixture
async def query(client: httpx.AsyncClient, sources: None) -> None:
    assert (await client.post("/v1/queries", json=JOIN)).status_code == 201


async def test_an_unknown_query_is_not_found(client: httpx.AsyncClient, problem: Problem) -> None:
    problem(await client.get("/v1/queries/nowhere/lateness"), 404, "query_not_found")


async def test_an_unknown_parameter_is_refused(client: httpx.AsyncClient, problem: Problem, query: None) -> None:
    problem(await client.get(PATH, params={"grace": "1h"}), 400, "unknown_parameter")


async def test_before_the_first_record_everything_is_empty_and_every_setting_is_there(
    client: httpx.AsyncClient, query: None
) -> None:
    body = (await client.get(PATH)).json()
    assert [(item["input"], item["count"], item["buckets"]) for item in body["inputs"]] == [
        ("departures", 0, []),
        ("w", 0, []),
    ]
    assert [(each["pointer"], each["relation"], each["rule"], each["current_ms"]) for each in body["settings"]] == [
        ("/joins/0/grace", None, "J3", 3_600_000),
        ("/versioned/history_retention", "weather", "V1", 172_800_000),
    ]
    assert (body["stale"], body["committed_at"]) == (True, None)


async def test_batches_of_all_tasks_add_up_and_the_advice_is_drawn_from_them(
    client: httpx.AsyncClient, dsn: str, query: None
) -> None:
    commit(dsn, "joined", [(0, 0, emitted(lateness=BATCH)), (0, 1, emitted(lateness=NEXT))])
    commit(dsn, "joined", [(0, 1, emitted(lateness=NEXT))])
    body = (await client.get(PATH)).json()
    departures = body["inputs"][0]
    assert departures["count"] == 30
    assert departures["max_ms"] == 7_200_000
    assert departures["buckets"] == [
        {"up_to_ms": 0, "count": 23},
        {"up_to_ms": 1_000, "count": 6},
        {"up_to_ms": 7_200_000, "count": 1},
    ]
    assert departures["quantiles"] == {"p50": 0, "p90": 1_000, "p99": 7_200_000, "p999": 7_200_000}
    advice = {each["value_ms"]: each for each in body["settings"][0]["advice"]}
    assert advice[0]["late_count"] == 7
    assert advice[1_000]["late_share"] == pytest.approx(1 / 30)
    assert advice[3_600_000] == {
        "value_ms": 3_600_000, "late_count": 1, "late_share": 1 / 30, "added_wait_ms": 3_600_000, "exact": True, "current": True,
    }  # fmt: skip
    assert advice[7_200_000]["late_count"] == 0
    assert max(advice) == 7_200_000


async def test_windows_are_advised_on_by_when_they_close(client: httpx.AsyncClient, dsn: str) -> None:
    assert (await client.post("/v1/queries", json=WINDOWS)).status_code == 201
    commit(dsn, "delays", [(0, 0, emitted(lateness={"window.grace": BATCH["departures"]}))])
    settings = (await client.get("/v1/queries/delays/lateness")).json()["settings"]
    assert [(each["pointer"], each["operator"], each["input"], each["count"]) for each in settings] == [
        ("/window/grace", "window", "departures", 10)
    ]

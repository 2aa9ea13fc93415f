"""Whether a query waits for another one, for which, and what can be done (P4)."""

from __future__ import annotations

import pytest

from app.status.lineage.rules import FeedFact, Graph, Part, QueryFact, RelationFact
from app.status.producers import Reader, wait_of
from tests.unit.app.graphs import derived, graph_of, query, source

H = 3_600_000
RAW = source("raw", Part(0, 0, 10, 4 * H))
ORDERS = source("orders", Part(0, 0, 5, 4 * H))
READER = Reader(("orders", "prices"), {"orders": {"0": 2}, "prices": {"0": 3}})


def pricer(state: str = "paused", read: int = 4, desired_state: str | None = None) -> QueryFact:
    """Writes `prices` of `raw`; at three o'clock when it has read four of ten records."""
    return query(
        "pricer", "raw", state=state, desired_state=desired_state, position={"raw": {"0": read}}, read_to={"raw": {"0": 3 * H}}
    )


def prices(kind: str = "table") -> RelationFact:
    return derived("prices", "pricer", 3, 3 * H, "table" if kind == "table" else "stream")


def detail(graph: Graph, reader: Reader = READER) -> str:
    reason = wait_of(graph, reader)
    assert reason is not None
    assert reason.code == "waits_for_producer"
    return reason.detail


@pytest.mark.parametrize(
    ("state", "desired_state", "way"),
    [
        ("paused", "paused", 'Resume it (PUT /v1/queries/pricer/desired-state {"state": "running"})'),
        ("stopped", "stopped", "Resume it"),
        ("failed", "running", "POST /v1/queries/pricer/restart"),
        ("failed", "stopped", "Resume it"),
        ("backoff", "running", "It should start without help"),
    ],
)
def test_the_producer_its_state_its_lag_and_the_ways_out_are_told(state: str, desired_state: str, way: str) -> None:
    told = detail(graph_of(RAW, ORDERS, prices(), pricer(state, desired_state=desired_state)))
    assert "no further than 'prices' has come (1970-01-01T03:00:00Z)" in told
    assert f"the query 'pricer', which writes it, is {state} and has 6 records to read, 1h of event time" in told
    assert way in told
    assert "DELETE /v1/queries/pricer?state=keep" in told


@pytest.mark.parametrize("joined", [frozenset[str](), frozenset({"prices"})])
def test_a_hold_is_offered_where_a_join_could_have_one(joined: frozenset[str]) -> None:
    reader = Reader(READER.relations, READER.position, joined=joined)
    assert ("`hold` and its `at_most`" in detail(graph_of(RAW, ORDERS, prices(), pricer()), reader)) == bool(joined)


def test_a_query_of_one_feed_waits_for_nobody() -> None:
    assert wait_of(graph_of(RAW, prices(), pricer()), Reader(("prices",), {"prices": {"0": 0}})) is None


def test_a_query_that_has_read_everything_waits_for_nobody() -> None:
    reader = Reader(READER.relations, {"orders": {"0": 5}, "prices": {"0": 3}})
    assert wait_of(graph_of(RAW, ORDERS, prices(), pricer()), reader) is None


def test_what_a_join_holds_for_does_not_bound_the_others() -> None:
    reader = Reader(READER.relations, READER.position, held=frozenset({"prices"}))
    assert wait_of(graph_of(RAW, ORDERS, prices(), pricer()), reader) is None


@pytest.mark.parametrize("state", ["running", "starting"])
def test_a_producer_at_work_is_lag_and_no_reason(state: str) -> None:
    assert wait_of(graph_of(RAW, ORDERS, prices(), pricer(state, desired_state="running")), READER) is None


@pytest.mark.parametrize("state", ["running", "paused", "stopped", "failed"])
def test_a_producer_that_has_read_everything_is_not_waited_for(state: str) -> None:
    assert wait_of(graph_of(RAW, ORDERS, prices(), pricer(state, read=10)), READER) is None


def test_a_result_that_was_kept_is_not_waited_for() -> None:
    assert wait_of(graph_of(ORDERS, derived("prices", None, 3, 3 * H)), READER) is None


def test_a_producer_that_never_began_is_told_as_such() -> None:
    told = detail(graph_of(RAW, ORDERS, derived("prices", "pricer"), query("pricer", "raw", state="stopped")))
    assert "has come (nothing yet)" in told
    assert "is stopped and has not begun to read" in told


def test_the_query_behind_the_producer_is_named_where_that_is_the_one_that_stands_still() -> None:
    clean = derived("clean", "cleaner", 4, 3 * H)
    cleaner = query("cleaner", "raw", state="paused", position={"raw": {"0": 4}}, read_to={"raw": {"0": 3 * H}})
    second = query("pricer", "clean", state="running", position={"clean": {"0": 4}}, read_to={"clean": {"0": 3 * H}})
    told = detail(graph_of(RAW, ORDERS, clean, prices(), cleaner, second))
    assert "the query 'cleaner', which stands behind it, is paused" in told


def test_of_two_that_stand_still_the_first_to_resume_is_named_and_the_other_mentioned() -> None:
    clean = derived("clean", "cleaner", 4, 3 * H)
    cleaner = query("cleaner", "raw", state="stopped", position={"raw": {"0": 4}}, read_to={"raw": {"0": 3 * H}})
    second = query("pricer", "clean", state="paused", position={"clean": {"0": 1}}, read_to={"clean": {"0": 2 * H}})
    told = detail(graph_of(RAW, ORDERS, clean, prices(), cleaner, second))
    assert "the query 'cleaner', which stands behind it, is stopped" in told
    assert "'pricer' is paused too" in told


def test_of_two_inputs_that_are_behind_the_one_that_is_furthest_behind_is_named() -> None:
    other = derived("other", "slow", 1, 2 * H)
    slow = query("slow", "raw", state="failed", position={"raw": {"0": 1}}, read_to={"raw": {"0": 2 * H}})
    reader = Reader(("orders", "prices", "other"), READER.position)
    assert "no further than 'other'" in detail(graph_of(RAW, ORDERS, prices(), pricer(), other, slow), reader)


def test_unread_files_of_the_producer_are_behind_without_a_number() -> None:
    files = RelationFact("raw", "stream", "source", FeedFact("files:csv:/data", None, ends={"0": 99}, holds="files"))
    reads_files = query("pricer", "raw", state="paused", position={"files:csv:/data": {"0": 10}})
    assert "is paused and has files to read" in detail(graph_of(files, ORDERS, prices(), reads_files))

"""The demo's input is what the demo says it is: disorder, lateness, cancelled flights."""

from __future__ import annotations

import polars as pl
import pytest

from examples.flights.data import Input, load, sent_before
from examples.flights.queries import expected_join, expected_windows


@pytest.fixture(scope="module")
def january() -> Input:
    return load(1)


def test_january_has_its_flights_and_the_cancelled_ones_have_no_event_time(january: Input) -> None:
    assert len(january.departures) == 27_004
    assert january.departures["_ts"].null_count() == 521


def test_departures_are_sent_in_the_order_of_landing_and_so_out_of_order(january: Input) -> None:
    assert january.departures["_sent_ms"].is_sorted()
    times = january.departures["_ts"].drop_nulls()
    assert not times.is_sorted()
    assert (times.cum_max() - times).max() > 10 * 3_600_000


def test_chunks_hold_everything_once_in_sending_order(january: Input) -> None:
    chunks = january.chunks()
    for name, frame in (("departures", january.departures), ("weather", january.weather)):
        sent = pl.concat([chunk.frame for chunk in chunks if chunk.relation == name])
        assert sent.equals(frame.select(pl.exclude("_ts", "_sent_ms", "_part")))
    last = [chunk for chunk in chunks if chunk.relation == "departures"][-1]
    cancelled_in_last = last.frame["departed_at"].null_count()
    assert last.accepted_before + len(last.frame) - cancelled_in_last == 27_004 - 521


def test_a_chunk_is_newline_delimited_json(january: Input) -> None:
    chunk = january.chunks()[0]
    assert chunk.ndjson.count(b"\n") == len(chunk.frame)


def test_the_batch_join_never_uses_weather_of_the_future(january: Input) -> None:
    joined = expected_join(january).filter(pl.col("observed_ms").is_not_null())
    assert (joined["observed_ms"] <= joined["departed_ms"]).all()


def test_the_batch_windows_count_each_departure_once_or_call_it_late_or_leave_it_open(january: Input) -> None:
    windows, late = expected_windows(january)
    departed = 27_004 - 521
    assert 0 < late < 100
    assert windows["flights"].sum() + late < departed
    assert windows["flights"].sum() + late > departed - 1_000


@pytest.fixture(scope="module")
def year() -> Input:
    return load(12)


def test_every_request_of_the_whole_year_has_a_record_that_is_accepted(year: Input) -> None:
    chunks = year.chunks()
    assert sum(len(chunk.frame) for chunk in chunks if chunk.relation == "departures") == len(year.departures) == 336_776
    assert all(chunk.frame["departed_at"].count() > 0 for chunk in chunks if chunk.relation == "departures")


def test_the_year_begins_with_what_a_demo_of_january_sends(january: Input, year: Input) -> None:
    for sent, again in zip(january.chunks(), year.chunks(), strict=False):
        assert (again.relation, again.accepted_before) == (sent.relation, sent.accepted_before)
        assert again.frame.equals(sent.frame)


@pytest.mark.parametrize(("have", "sent"), [(0, 0), (26_483, 26_483), (26_486, 26_483), (26_480, 26_444), (900_000, 26_483)])
def test_what_somebody_else_appended_is_not_taken_for_the_demos(january: Input, have: int, sent: int) -> None:
    assert sent_before(january.chunks(), "departures", have) == sent

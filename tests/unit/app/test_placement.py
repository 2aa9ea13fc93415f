"""How queries are spread over drivers, and what is said of one that none has room for."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID, uuid4

from hypothesis import given
from hypothesis import strategies as st

from app.catalog.drivers.placement import DriverLoad, ReadyDrivers, fair_share, reason_for_waiting
from app.catalog.warned import Reason

FLEETS = st.builds(
    lambda loads, unplaced: ReadyDrivers(
        tuple(DriverLoad(UUID(int=n), cap, min(held, cap)) for n, (cap, held) in enumerate(loads)), unplaced
    ),
    st.lists(st.tuples(st.integers(1, 8), st.integers(0, 8)), max_size=4),
    st.integers(0, 12),
)


def fleet(*loads: tuple[int, int], unplaced: int = 0) -> ReadyDrivers:
    return ReadyDrivers(tuple(DriverLoad(UUID(int=n), cap, held) for n, (cap, held) in enumerate(loads)), unplaced)


@given(st.lists(st.integers(1, 10), min_size=1, max_size=5), st.integers(0, 60))
def test_the_share_is_the_least_with_which_everything_that_fits_is_held(caps: list[int], total: int) -> None:
    share = fair_share(caps, total)
    assert sum(min(cap, share) for cap in caps) >= min(total, sum(caps))
    assert share == 0 or sum(min(cap, share - 1) for cap in caps) < total


@given(FLEETS)
def test_what_waits_finds_room_as_long_as_there_is_any(given_fleet: ReadyDrivers) -> None:
    room = sum(max(0, given_fleet.room(load.driver_id)) for load in given_fleet.drivers)
    free = sum(load.max_queries - load.held for load in given_fleet.drivers)
    assert room >= min(given_fleet.unplaced, free)


@given(FLEETS)
def test_handing_over_comes_to_an_end_and_leaves_no_two_drivers_far_apart(start: ReadyDrivers) -> None:
    now = fleet(*((load.max_queries, load.held) for load in start.drivers))
    for _ in range(64):
        giver = next((load for load in now.drivers if now.surplus(load.driver_id)), None)
        if giver is None:
            break
        moved = now.surplus(giver.driver_id)
        now = fleet(*((d.max_queries, d.held - moved * (d == giver)) for d in now.drivers), unplaced=moved)
        # As drivers do, one after another, round by round.
        for number in [*range(len(now.drivers))] * 2:
            load = now.drivers[number]
            taken = min(max(0, now.room(load.driver_id)), now.unplaced)
            loads = ((d.max_queries, d.held + taken * (d == load)) for d in now.drivers)
            now = fleet(*loads, unplaced=now.unplaced - taken)
        assert now.unplaced == 0
    else:
        raise AssertionError(f"queries move for ever: {start}")
    for load in now.drivers:
        assert all(load.held <= other.held + 1 or other.held >= other.max_queries for other in now.drivers)


def waits(fleet: ReadyDrivers, starting: int = 0, root: UUID | None = None, *, has_results: bool = False) -> Reason | None:
    return reason_for_waiting(fleet, starting, "orders", root, has_results=has_results)


def test_a_query_without_a_driver_is_told_why() -> None:
    assert waits(fleet()).code == "no_driver"  # type: ignore[union-attr]
    assert waits(fleet(), 1).code == "driver_starting"  # type: ignore[union-attr]
    full = waits(fleet((2, 2), (3, 3)))
    assert full is not None
    assert (full.code, full.fact) == (
        "waiting_for_place",
        "the query waits for a place: 2 ready drivers hold 5 of 5 queries, which is the limit",
    )
    assert waits(fleet((2, 2), (3, 1))) is None
    assert waits(fleet((2, 2), (3, 3), (3, 0))) is None, "a driver was added"


def test_what_waits_already_takes_the_room_that_is_left() -> None:
    full = waits(fleet((2, 1), unplaced=1))
    assert full is not None
    assert full.code == "waiting_for_place"
    assert waits(fleet((3, 1), unplaced=1)) is None


def test_a_query_whose_state_no_driver_has_is_told_where_it_is_and_what_to_do() -> None:
    root, other = uuid4(), uuid4()
    here = replace(fleet((2, 1)), drivers=tuple(replace(load, root=str(root)) for load in fleet((2, 1)).drivers))
    assert waits(here, root=root) is None
    told = waits(here, root=other)
    assert told is not None
    assert told.code == "state_not_here"
    assert str(other) in told.detail
    assert "PUT /v1/queries/orders?state=discard" in told.detail
    assert waits(here, 1, root=other).code == "driver_starting"  # type: ignore[union-attr]
    assert waits(here, has_results=True).code == "state_not_here"  # type: ignore[union-attr]

"""Every snapshot that an adversarial driver, an adversarial user and an adversarial lease can bring about, explored to the end.

Numbers are cut down to what a decision can see: an epoch is the row's or an older one, a generation is the observed one or not,
time is before every deadline or after all of them.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeVar

import pytest

from app.catalog.drivers.crash_suspects import LOST
from app.catalog.drivers.lifecycle import Action, Effect, Limits, Snapshot, decide
from app.catalog.drivers.states import (
    Desired,
    DesiredState,
    ErrorReport,
    HandleKind,
    HandleReport,
    Outcome,
    State,
    Status,
    is_outage,
)

LIMITS = Limits(start_timeout_ms=10, stop_timeout_ms=10, healthy_after_ms=10, max_attempts=1)
EPOCH = 100
EARLY, LATE = 0, 1_000_000
FAULTS = {
    "fatal": ErrorReport("definition_invalid", "user", is_retryable=False, detail=""),
    "retryable": ErrorReport("internal_error", "internal", is_retryable=True, detail=""),
    "away": ErrorReport("source_unavailable", "external", is_retryable=True, detail=""),
    "silent": None,
}
FATES = ["fatal", "retryable", "silent"]
"""What ends queries for ever in the end. What is away does not, and is looked at apart: with it there are twice as many worlds."""

W = TypeVar("W", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Row:
    """Desired state and status of one query, cut down."""

    state: State = State.STOPPED
    outcome: Outcome | None = None
    attempt: int = 0
    is_changed: bool = False
    desired: Desired = Desired.RUNNING
    is_deleted: bool = False
    losses: int = 0
    is_away: bool = False

    @property
    def wants(self) -> Desired:
        return Desired.STOPPED if self.is_deleted else self.desired


@dataclass(frozen=True, slots=True)
class Hand:
    """The handle one driver has: its kind, whether its launch is the row's last one, why it died; whether it is leaving.

    That one is leaving while the next is there is cut away: no decision about what lives asks for it.
    """

    kind: HandleKind = HandleKind.ABSENT
    is_current: bool = True
    fault: str = "silent"
    is_leaving: bool = False

    @property
    def is_live(self) -> bool:
        return self.kind in (HandleKind.LAUNCHING, HandleKind.RUNNING, HandleKind.STOPPING)


GONE = Hand()


@cache
def decided(row: Row, hand: Hand, *, is_lease_mine: bool, is_draining: bool, now: int) -> Action:
    status = Status(
        state=row.state,
        outcome=row.outcome,
        epoch=EPOCH,
        attempt=row.attempt,
        next_attempt_ms=LATE // 2 if row.state is State.BACKOFF else None,
        state_since_ms=0,
        observed_generation=1,
        error=FAULTS["away"] if row.is_away else LOST,
        losses=row.losses,
    )
    epoch = EPOCH if hand.is_current else EPOCH - 1
    report = HandleReport(hand.kind, epoch, age_ms=now, error=FAULTS[hand.fault], is_leaving=hand.is_leaving)
    desired = DesiredState(row.desired, generation=2 if row.is_changed else 1, nonce=0, is_deleted=row.is_deleted)
    # Early a batch is under way, late the query has come to rest: both are met in every state.
    is_busy = now == EARLY
    snapshot = Snapshot(
        desired, status, report, is_lease_mine, is_draining, now, 0.5, was_busy=is_busy, has_progressed=not is_busy
    )
    return decide(snapshot, LIMITS)


def written(row: Row, action: Action) -> Row:
    """The row after the guarded write of an action."""
    if action.status is None:
        return row
    to = action.status
    is_changed, is_away = row.is_changed and to.observed_generation == 1, is_outage(to.error)
    row = replace(row, attempt=to.attempt, is_changed=is_changed, losses=min(to.losses, 2), is_away=is_away)
    return replace(row, state=to.state, outcome=to.outcome)


def handled(hand: Hand, action: Action) -> Hand:
    """The handle after the effect of an action."""
    if action.effect is Effect.LAUNCH:
        return Hand(HandleKind.LAUNCHING)
    if action.effect is Effect.STOP:
        return replace(hand, kind=HandleKind.STOPPING)
    if action.effect is Effect.FORGET:
        return Hand(is_leaving=hand.is_leaving)
    return hand


def fates(hand: Hand) -> Iterator[Hand]:
    """What may become of a handle by itself."""
    if hand.kind is HandleKind.LAUNCHING:
        yield replace(hand, kind=HandleKind.RUNNING)
    if hand.kind in (HandleKind.LAUNCHING, HandleKind.RUNNING):
        for fault in FATES:
            yield replace(hand, kind=HandleKind.DEAD, fault=fault)
    if hand.kind is HandleKind.STOPPING:
        yield Hand(is_leaving=True)
    if hand.is_leaving:
        yield GONE


def user_acts(row: Row) -> Iterator[Row]:
    for desired in Desired:
        yield replace(row, desired=desired)
    yield replace(row, is_changed=True)
    yield replace(row, is_deleted=True)


def explored(start: W, moves: Callable[[W], Iterable[W]]) -> set[W]:
    seen, due = {start}, deque([start])
    while due:
        for world in moves(due.popleft()):
            if world not in seen:
                seen.add(world)
                due.append(world)
    return seen


@dataclass(frozen=True, slots=True)
class World:
    """One driver."""

    row: Row = Row()
    hand: Hand = GONE
    is_lease_mine: bool = True
    is_draining: bool = False

    def action(self, now: int) -> Action:
        return decided(self.row, self.hand, is_lease_mine=self.is_lease_mine, is_draining=self.is_draining, now=now)

    def ticked(self, now: int) -> World:
        action = self.action(now)
        is_given_back = action.is_lease_released or action.effect is Effect.RELEASE
        return World(
            row=written(self.row, action),
            hand=handled(self.hand, action),
            is_lease_mine=self.is_lease_mine and not is_given_back,
            is_draining=self.is_draining or action.effect is Effect.DRAIN,
        )


def moves(world: World) -> Iterator[World]:
    yield world.ticked(EARLY)
    yield world.ticked(LATE)
    yield from (replace(world, row=row) for row in user_acts(world.row))
    yield from (replace(world, hand=hand) for hand in fates(world.hand))
    yield replace(world, is_lease_mine=not world.is_lease_mine)
    # Another driver had the lease in between and launched: what lives here belongs to an older epoch.
    yield replace(world, hand=replace(world.hand, is_current=False))
    yield replace(world, is_draining=True)
    yield replace(world, hand=GONE, is_draining=False)


@cache
def reachable() -> frozenset[World]:
    return frozenset(explored(World(), moves))


def every_world() -> Iterator[World]:
    """All combinations, reachable or not."""
    shapes = [(state, None) for state in State if state is not State.STOPPING]
    shapes += [(State.STOPPING, outcome) for outcome in (*Outcome, None)]
    kinds = [(kind, "silent") for kind in HandleKind if kind is not HandleKind.DEAD] + [
        (HandleKind.DEAD, fault) for fault in FAULTS
    ]
    flags = (True, False)
    hands = [Hand(kind, is_current, fault) for kind, fault in kinds for is_current in flags] + [Hand(is_leaving=True)]
    for (state, outcome), attempt, changed, desired, deleted, hand, mine, draining in itertools.product(
        shapes, (0, 1), flags, Desired, flags, hands, flags, flags
    ):
        yield World(Row(state, outcome, attempt, changed, desired, deleted), hand, mine, draining)


def test_the_function_is_total_and_every_action_is_well_formed() -> None:
    for world in every_world():
        for now in (EARLY, LATE):
            action = world.action(now)
            if action.status is not None:
                assert world.is_lease_mine, world
                assert (action.status.outcome is not None) == (action.status.state is State.STOPPING), world
                assert (action.status.next_attempt_ms is not None) == (action.status.state is State.BACKOFF), world
                assert action.status.epoch == EPOCH + (action.effect is Effect.LAUNCH), world
            if action.effect is Effect.LAUNCH:
                assert action.status is not None, world
                assert action.status.state is State.STARTING, world


def test_nothing_is_launched_purged_or_given_back_while_something_lives() -> None:
    for world in every_world():
        for now in (EARLY, LATE):
            action = world.action(now)
            leaves = action.is_lease_released or action.effect in (Effect.LAUNCH, Effect.PURGE, Effect.RELEASE, Effect.FORGET)
            assert not (leaves and world.hand.is_live), (world, action)


def test_nothing_is_purged_or_at_rest_given_back_while_something_is_leaving() -> None:
    for world in every_world():
        action = world.action(LATE)
        if world.hand.is_leaving and world.is_lease_mine and not world.is_draining:
            assert not action.is_lease_released, (world, action)
            assert action.effect not in (Effect.PURGE, Effect.RELEASE), (world, action)


def test_nothing_is_launched_without_a_wish_without_the_lease_or_while_draining() -> None:
    for world in every_world():
        if world.action(LATE).effect is Effect.LAUNCH:
            assert world.row.wants is Desired.RUNNING
            assert world.is_lease_mine
            assert not world.is_draining


def test_failed_is_left_only_by_an_act_of_the_user() -> None:
    for world in reachable():
        for now in (EARLY, LATE):
            if world.row.state is State.FAILED and world.ticked(now).row.state is not State.FAILED:
                assert world.row.wants is Desired.STOPPED or world.row.is_changed, world


def test_every_state_and_every_outcome_is_reached() -> None:
    assert {world.row.state for world in reachable()} == set(State)
    assert {world.row.outcome for world in reachable()} == {*Outcome, None}


def settled(world: World, desired: Desired, fate: str) -> World:
    """Let time pass with a steady desired state: handles stop when asked, launches end as ``fate`` says, leases are claimed again."""
    row = replace(world.row, desired=desired, is_deleted=False)
    # A draining driver ends, and its successor begins with nothing.
    return settled_from(replace(world, row=row, hand=GONE if world.is_draining else world.hand, is_draining=False), desired, fate)


# Six worlds and more begin alike once the desired state is given, and those that differ soon meet: each step is made once.
@cache
def settled_from(world: World, desired: Desired, fate: str, steps: int = 40) -> World:
    for _ in range(steps):
        before, world = world, passed(world, desired, fate)
        if world == before:
            return world
    raise AssertionError(f"does not settle: {world}")


@cache
def passed(world: World, desired: Desired, fate: str) -> World:
    """A step of both times."""
    if world.hand.kind is HandleKind.STOPPING:
        world = replace(world, hand=Hand(is_leaving=True))
    elif world.hand.is_leaving:
        world = replace(world, hand=GONE)
    elif world.hand.kind is HandleKind.LAUNCHING and fate == "runs":
        world = replace(world, hand=replace(world.hand, kind=HandleKind.RUNNING))
    elif world.hand.kind in (HandleKind.LAUNCHING, HandleKind.RUNNING) and fate != "runs":
        world = replace(world, hand=replace(world.hand, kind=HandleKind.DEAD, fault=fate))
    world = replace(world.ticked(EARLY), is_draining=False)
    is_wanted = not (world.row.state in (State.STOPPED, State.FAILED) and world.row.state.value == desired.value)
    world = replace(world.ticked(LATE), is_draining=False)
    return replace(world, is_lease_mine=world.is_lease_mine or (is_wanted and not world.hand.is_live))


@pytest.mark.parametrize("fate", ["runs", *FATES])
def test_a_steady_stop_ends_stopped_with_nothing_alive(fate: str) -> None:
    for world in reachable():
        end = settled(world, Desired.STOPPED, fate)
        assert end.row.state is State.STOPPED, (world, end)
        assert not end.hand.is_live, (world, end)


@pytest.mark.parametrize("desired", [Desired.RUNNING, Desired.PAUSED])
def test_a_steady_wish_that_can_be_met_is_met_unless_the_query_has_failed(desired: Desired) -> None:
    for world in reachable():
        end = settled(world, desired, "runs")
        assert end.row.state.value in (desired.value, "failed"), (world, end)
        assert end.row.state is not State.FAILED or not end.row.is_changed, (world, end)
        assert end.hand.is_live == (end.row.state is State.RUNNING), (world, end)


@pytest.mark.parametrize("fate", FATES)
def test_a_query_that_always_dies_ends_failed_or_paused_and_does_not_run_for_ever(fate: str) -> None:
    for world in reachable():
        assert settled(world, Desired.RUNNING, fate).row.state is State.FAILED, world
        assert settled(world, Desired.PAUSED, fate).row.state in (State.PAUSED, State.FAILED), world


def test_a_query_is_never_failed_by_what_is_outside() -> None:
    alive = [world for world in reachable() if world.row.state in (State.STARTING, State.RUNNING)]
    assert alive
    for world in alive:
        dead = replace(world, hand=Hand(HandleKind.DEAD, fault="away"))
        for now in (EARLY, LATE):
            after = dead.ticked(now).ticked(now)
            assert after.row.state is not State.FAILED, world
            assert after.row.attempt in (0, world.row.attempt), world


@dataclass(frozen=True, slots=True)
class Pair:
    """Two drivers, one row. ``holder`` is the driver that has the lease."""

    row: Row = Row()
    hands: tuple[Hand, Hand] = (GONE, GONE)
    holder: int | None = None

    def ticked(self, driver: int, now: int) -> Pair:
        is_mine = self.holder == driver
        action = decided(self.row, self.hands[driver], is_lease_mine=is_mine, is_draining=False, now=now)
        is_given_back = is_mine and (action.is_lease_released or action.effect is Effect.RELEASE)
        other = self.hands[1 - driver]
        if action.effect is Effect.LAUNCH:
            other = replace(other, is_current=False)
        pair = self.with_hand(driver, handled(self.hands[driver], action)).with_hand(1 - driver, other)
        return replace(pair, row=written(self.row, action), holder=None if is_given_back else self.holder)

    def with_hand(self, driver: int, hand: Hand) -> Pair:
        return replace(self, hands=(hand, self.hands[1]) if driver == 0 else (self.hands[0], hand))


def pair_moves(pair: Pair) -> Iterator[Pair]:
    for driver in (0, 1):
        yield pair.ticked(driver, EARLY)
        yield pair.ticked(driver, LATE)
        yield from (
            pair.with_hand(driver, hand)
            for hand in fates(pair.hands[driver])
            if hand.kind is not HandleKind.DEAD or hand.fault != "silent"
        )
        yield pair.with_hand(driver, GONE)
        yield replace(pair, holder=driver)
    yield replace(pair, row=replace(pair.row, desired=Desired.RUNNING))
    yield replace(pair, row=replace(pair.row, desired=Desired.STOPPED))
    yield replace(pair, row=replace(pair.row, is_changed=True))


def test_of_two_drivers_at_most_one_ever_holds_a_live_handle_of_the_last_epoch() -> None:
    pairs = explored(Pair(), pair_moves)
    both = [p for p in pairs if all(hand.is_live for hand in p.hands)]
    # A driver that lost its lease may still be running or stopping while the other one launches: the fence is for that moment.
    assert any(hand.kind is HandleKind.RUNNING for pair in both for hand in pair.hands)
    for pair in both:
        assert sum(hand.is_live and hand.is_current for hand in pair.hands) <= 1, pair

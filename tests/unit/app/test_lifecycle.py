"""Each row of the table in ``app.catalog.drivers.lifecycle``, and the boundaries of its timings."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from app.catalog.drivers.crash_suspects import LOST, SUSPECT_AFTER, group_of, has_turn, is_alone, next_turns
from app.catalog.drivers.lifecycle import WAIT, Action, Effect, Limits, Snapshot, backoff_ms, decide
from app.catalog.drivers.states import Desired, DesiredState, ErrorReport, HandleKind, HandleReport, Outcome, State, Status

LIMITS = Limits(start_timeout_ms=100, stop_timeout_ms=50, healthy_after_ms=200, max_attempts=3)
NOW = 1_000_000
RETRYABLE = ErrorReport("internal_error", "internal", is_retryable=True, detail="a race was lost")
FATAL = ErrorReport("definition_invalid", "user", is_retryable=False, detail="no such column")
RUNS = HandleReport(HandleKind.RUNNING, epoch=7, age_ms=0)
ABSENT = HandleReport()


def snapshot(
    state: State,
    *,
    wants: str = "running",
    handle: HandleReport = ABSENT,
    outcome: str | None = None,
    is_lease_mine: bool = True,
    is_draining: bool = False,
    desired: DesiredState | None = None,
    **fields: object,
) -> Snapshot:
    status = Status(
        state=state,
        outcome=None if outcome is None else Outcome(outcome),
        epoch=7,
        observed_generation=2,
        observed_nonce=1,
        state_since_ms=NOW,
    )
    return Snapshot(
        desired=desired or DesiredState(Desired(wants), generation=2, nonce=1),
        status=replace(status, **fields),  # type: ignore[arg-type]
        handle=handle,
        is_lease_mine=is_lease_mine,
        is_draining=is_draining,
        now_ms=NOW,
        jitter=0.5,
    )


def decided(state: State, **fields: object) -> Action:
    return decide(snapshot(state, **fields), LIMITS)  # type: ignore[arg-type]


def entered(action: Action) -> tuple[str, str | None]:
    assert action.status is not None
    return action.status.state.value, action.status.outcome and action.status.outcome.value


def dead(error: ErrorReport | None, epoch: int = 7) -> HandleReport:
    return HandleReport(HandleKind.DEAD, epoch=epoch, age_ms=0, error=error)


@pytest.mark.parametrize("state", [State.STOPPED, State.PAUSED, State.BACKOFF, State.FAILED])
def test_01_an_orphan_is_stopped_before_anything_else(state: State) -> None:
    assert decided(state, handle=RUNS) == Action("1", effect=Effect.STOP)


def test_02_a_wanted_query_takes_the_next_epoch_before_it_is_launched() -> None:
    action = decided(State.STOPPED, attempt=2, observed_generation=1)
    assert entered(action) == ("starting", None)
    assert action.effect is Effect.LAUNCH
    assert action.status is not None
    assert (action.status.epoch, action.status.attempt, action.status.observed_generation) == (8, 0, 2)


def test_02_a_query_wanted_paused_is_paused_without_a_launch() -> None:
    action = decided(State.STOPPED, wants="paused")
    assert entered(action) == ("paused", None)
    assert action.effect is Effect.NONE


def test_03_a_deleted_query_is_purged_once_stopped() -> None:
    gone = DesiredState(Desired.RUNNING, generation=2, nonce=1, is_deleted=True)
    assert decided(State.STOPPED, desired=gone).effect is Effect.PURGE
    assert entered(decided(State.RUNNING, handle=RUNS, desired=gone)) == ("stopping", "stopped")


@pytest.mark.parametrize("state", [State.STARTING, State.RUNNING])
def test_04_a_wanted_stop_tears_down(state: State) -> None:
    assert entered(decided(state, wants="stopped", handle=RUNS)) == ("stopping", "stopped")


def test_04_a_paused_query_stops_at_once_and_gives_its_lease_back() -> None:
    action = decided(State.PAUSED, wants="stopped")
    assert entered(action) == ("stopped", None)
    assert action.is_lease_released


@pytest.mark.parametrize("state", [State.STARTING, State.RUNNING])
def test_06_an_error_that_a_retry_cannot_help_leads_to_failed(state: State) -> None:
    action = decided(state, handle=dead(FATAL))
    assert entered(action) == ("stopping", "failed")
    assert action.status is not None
    assert action.status.error == FATAL


@pytest.mark.parametrize("changed", [DesiredState(Desired.RUNNING, 3, 1), DesiredState(Desired.RUNNING, 2, 2)])
def test_05_a_new_generation_or_nonce_restarts(changed: DesiredState) -> None:
    assert entered(decided(State.RUNNING, handle=RUNS, desired=changed)) == ("stopping", "restart")


def test_05_a_paused_query_observes_a_new_generation_and_stays_paused() -> None:
    action = decided(State.PAUSED, desired=DesiredState(Desired.PAUSED, 3, 1))
    assert entered(action) == ("paused", None)
    assert action.status is not None
    assert action.status.observed_generation == 3


@pytest.mark.parametrize(
    ("handle", "code"),
    [
        (dead(RETRYABLE), "internal_error"),
        (HandleReport(HandleKind.LAUNCHING, epoch=7, age_ms=100), "start_timeout"),
    ],
)
def test_07_what_a_retry_may_help_backs_off(handle: HandleReport, code: str) -> None:
    action = decided(State.STARTING, handle=handle)
    assert entered(action) == ("stopping", "backoff")
    assert action.status is not None
    assert action.status.error is not None
    assert action.status.error.code == code


@pytest.mark.parametrize("age_ms", [None, 0, 99])
def test_07_a_launch_in_time_or_waiting_for_its_turn_is_left_alone(age_ms: int | None) -> None:
    assert decided(State.STARTING, handle=HandleReport(HandleKind.LAUNCHING, epoch=7, age_ms=age_ms)) is WAIT


ALONE_FROM = SUSPECT_AFTER + 3
"""Losses from which on a suspect has its turn alone."""

LOST_HANDLES = [ABSENT, dead(None), dead(LOST), dead(FATAL, epoch=6), HandleReport(HandleKind.RUNNING, epoch=6, age_ms=0)]


def after_loss(state: State, *, losses: int, was_busy: bool, handle: HandleReport = ABSENT) -> tuple[Action, Action]:
    """What is decided of a query whose driver died, and when nothing of it lives any more."""
    lost = decide(replace(snapshot(state, handle=handle, losses=losses, attempt=1), was_busy=was_busy), LIMITS)
    assert lost.status is not None
    assert lost.status.error == LOST
    return lost, decide(replace(snapshot(State.STOPPING), status=lost.status), LIMITS)


@pytest.mark.parametrize("handle", LOST_HANDLES)
@pytest.mark.parametrize("state", [State.STARTING, State.RUNNING])
def test_07a_a_query_with_nothing_under_way_starts_at_once_and_pays_nothing_for_its_drivers_end(
    state: State, handle: HandleReport
) -> None:
    lost, then = after_loss(state, losses=SUSPECT_AFTER, was_busy=False, handle=handle)
    assert lost.rule == "7a"
    assert then.effect is Effect.LAUNCH
    assert then.status is not None
    assert (then.status.attempt, then.status.losses, then.status.error) == (1, SUSPECT_AFTER, LOST)
    # What the user changes meanwhile begins with a clean slate.
    edited = replace(snapshot(State.STOPPING, desired=DesiredState(Desired.RUNNING, generation=3, nonce=1)), status=lost.status)
    assert (anew := decide(edited, LIMITS).status) is not None
    assert (anew.attempt, anew.losses, anew.error) == (0, 0, None)


@pytest.mark.parametrize("handle", LOST_HANDLES)
@pytest.mark.parametrize("state", [State.STARTING, State.RUNNING])
@pytest.mark.parametrize("losses", [0, 1, SUSPECT_AFTER, ALONE_FROM - 1])
def test_07c_23_a_query_with_a_batch_under_way_is_noted_and_due_at_once(state: State, losses: int, handle: HandleReport) -> None:
    lost, then = after_loss(state, losses=losses, was_busy=True, handle=handle)
    assert (lost.rule, then.rule) == ("7c", "23")
    assert then.status is not None
    assert (then.status.state, then.status.attempt, then.status.losses) == (State.BACKOFF, 1, losses + 1)
    assert then.status.next_attempt_ms == NOW


def test_07b_a_query_that_ran_alone_when_its_driver_died_spends_an_attempt() -> None:
    lost, then = after_loss(State.STARTING, losses=ALONE_FROM, was_busy=True)
    assert (lost.rule, then.rule) == ("7b", "19")
    assert then.status is not None
    assert (then.status.attempt, then.status.losses) == (2, ALONE_FROM + 1)
    assert then.status.next_attempt_ms is not None
    assert then.status.next_attempt_ms > NOW


@pytest.mark.parametrize(("losses", "turn_ms"), [(1, 0), (2, 10_000), (3, 20_000), (8, 120_000)])
def test_a_turn_is_bounded_and_grows_with_the_losses(losses: int, turn_ms: int) -> None:
    limits = Limits()
    for age_ms in {0, turn_ms - 1, turn_ms} - {-1}:
        status = replace(snapshot(State.RUNNING, losses=losses).status, state_since_ms=NOW - age_ms)
        assert has_turn(status, NOW, limits.healthy_after_ms) == (age_ms < turn_ms)
        assert is_alone(status, NOW, limits.healthy_after_ms) == (age_ms < turn_ms and losses >= ALONE_FROM)
    # Behind its turn others run beside it: their driver's death is not its own fault alone.
    late = snapshot(State.RUNNING, losses=ALONE_FROM, state_since_ms=NOW - 80_000)
    assert decide(late, limits).rule == "7c"


def test_22_a_suspect_waits_for_its_turn() -> None:
    waiting = snapshot(State.BACKOFF, losses=SUSPECT_AFTER, next_attempt_ms=NOW - 1)
    assert decide(replace(waiting, is_turn=False), LIMITS) == WAIT
    assert decide(waiting, LIMITS).effect is Effect.LAUNCH
    other = snapshot(State.BACKOFF, losses=SUSPECT_AFTER - 1, next_attempt_ms=NOW - 1)
    assert decide(replace(other, is_turn=False), LIMITS).effect is Effect.LAUNCH


def suspect(number: int, losses: int, attempt: int = 0) -> tuple[UUID, Status]:
    return UUID(int=number), replace(snapshot(State.BACKOFF, losses=losses).status, attempt=attempt)


@pytest.mark.parametrize(
    ("waiting", "with_turn", "chosen"),
    [
        ([2] * 10, [], {0, 1, 2, 3, 4, 5, 6, 7}),
        ([2, 2, 2], [2] * 7, {0}),
        ([3] * 6, [], {0, 1, 2, 3}),
        ([4, 4, 4], [], {0, 1}),
        ([4, 2], [], {0, 1}),
        ([4, 2, 2], [], {1, 2}),
        ([5, 5], [], {0}),
        ([5, 2], [], {1}),
        ([2, 2], [5], set()),
        ([8], [2], set()),
        ([], [], set()),
    ],
)
def test_suspects_start_in_groups_that_get_smaller_with_each_loss(
    waiting: list[int], with_turn: list[int], chosen: set[int]
) -> None:
    found = next_turns(
        [suspect(number, losses) for number, losses in enumerate(waiting)], [suspect(0, losses)[1] for losses in with_turn]
    )
    assert found == {UUID(int=number) for number in chosen}


def test_suspects_that_have_spent_fewer_attempts_come_first() -> None:
    assert next_turns([suspect(0, 5, attempt=1), suspect(1, 6)], []) == {UUID(int=1)}
    assert [group_of(suspect(0, losses)[1]) for losses in range(2, 9)] == [8, 4, 2, 1, 1, 1, 1]


def test_12a_the_first_commit_ends_all_suspicion() -> None:
    runs = snapshot(State.RUNNING, handle=RUNS, losses=SUSPECT_AFTER, attempt=2)
    assert decide(runs, LIMITS) == WAIT
    action = decide(replace(runs, has_progressed=True), LIMITS)
    assert action.rule == "12a"
    assert action.status is not None
    assert (action.status.losses, action.status.attempt) == (0, 2)


def test_08_a_running_query_shows_no_error_of_a_launch_that_is_over() -> None:
    action = decided(State.STARTING, handle=RUNS, attempt=1, error=RETRYABLE)
    assert action.status is not None
    assert (action.status.state, action.status.error, action.status.attempt) == (State.RUNNING, None, 1)


def test_08_a_started_query_runs() -> None:
    action = decided(State.STARTING, handle=RUNS, attempt=2)
    assert entered(action) == ("running", None)
    assert action.status is not None
    assert action.status.attempt == 2


@pytest.mark.parametrize("state", [State.STARTING, State.RUNNING])
def test_09_a_wanted_pause_stops_the_query_and_keeps_the_lease(state: State) -> None:
    action = decided(state, wants="paused", handle=RUNS)
    assert entered(action) == ("stopping", "paused")
    assert not action.is_lease_released


@pytest.mark.parametrize("outcome", ["paused", "restart"])
def test_10_what_was_stopped_for_a_pause_is_paused(outcome: str) -> None:
    action = decided(State.STOPPING, wants="paused", outcome=outcome)
    assert entered(action) == ("paused", None)
    assert not action.is_lease_released


def test_11_a_paused_query_that_is_wanted_is_launched() -> None:
    action = decided(State.PAUSED)
    assert entered(action) == ("starting", None)
    assert action.effect is Effect.LAUNCH


@pytest.mark.parametrize(("for_ms", "attempt"), [(199, None), (200, 0)])
def test_12_attempts_heal_after_healthy_after(for_ms: int, attempt: int | None) -> None:
    action = decided(State.RUNNING, handle=RUNS, attempt=2, state_since_ms=NOW - for_ms)
    assert (action.status and action.status.attempt) == attempt


def test_12_healing_does_not_pretend_that_the_query_started_again() -> None:
    action = decided(State.RUNNING, handle=RUNS, attempt=2, state_since_ms=NOW - 500)
    assert action.status is not None
    assert action.status.state_since_ms == NOW - 500


@pytest.mark.parametrize("outcome", ["paused", "restart", "backoff", "failed"])
def test_13_a_users_stop_replaces_every_other_outcome(outcome: str) -> None:
    assert entered(decided(State.STOPPING, wants="stopped", outcome=outcome, handle=RUNS)) == ("stopping", "stopped")


def test_14_a_live_handle_is_stopped_then_waited_for_then_the_driver_drains() -> None:
    stops = HandleReport(HandleKind.STOPPING, epoch=7, age_ms=49)
    assert decided(State.STOPPING, outcome="restart", handle=RUNS).effect is Effect.STOP
    assert decided(State.STOPPING, outcome="restart", handle=stops) is WAIT
    assert decided(State.STOPPING, outcome="restart", handle=replace(stops, age_ms=50)).effect is Effect.DRAIN


def test_15_a_stopped_query_gives_its_lease_back() -> None:
    action = decided(State.STOPPING, wants="stopped", outcome="stopped", attempt=2, error=RETRYABLE)
    assert entered(action) == ("stopped", None)
    assert action.is_lease_released
    assert action.status is not None
    assert (action.status.attempt, action.status.error) == (0, None)


LEAVING = HandleReport(is_leaving=True)


def test_15_a_query_in_the_midst_of_a_round_is_stopped_at_once_and_its_lease_and_files_stay_until_that_is_over() -> None:
    action = decided(State.STOPPING, wants="stopped", outcome="stopped", handle=LEAVING)
    assert entered(action) == ("stopped", None)
    assert not action.is_lease_released
    gone = DesiredState(Desired.STOPPED, generation=2, nonce=1, is_deleted=True)
    assert decided(State.STOPPED, wants="stopped", handle=LEAVING) is WAIT
    assert decided(State.STOPPED, desired=gone, handle=LEAVING) is WAIT
    assert decided(State.STOPPED, wants="stopped").effect is Effect.RELEASE
    assert decided(State.STOPPED, desired=gone).effect is Effect.PURGE


def test_02_a_query_is_launched_while_what_its_last_launch_left_at_work_goes_on() -> None:
    assert decided(State.STOPPED, handle=LEAVING).effect is Effect.LAUNCH
    assert decided(State.STOPPING, outcome="restart", handle=LEAVING).effect is Effect.LAUNCH


@pytest.mark.parametrize("outcome", ["restart", "paused"])
def test_16_a_restart_launches_the_next_epoch(outcome: str) -> None:
    action = decided(State.STOPPING, outcome=outcome, attempt=2, handle=dead(None))
    assert entered(action) == ("starting", None)
    assert action.effect is Effect.LAUNCH
    assert action.status is not None
    assert (action.status.epoch, action.status.attempt) == (8, 0)


def test_17_a_failed_query_keeps_its_error_and_gives_its_lease_back() -> None:
    action = decided(State.STOPPING, outcome="failed", error=FATAL)
    assert entered(action) == ("failed", None)
    assert action.is_lease_released
    assert action.status is not None
    assert action.status.error == FATAL


def test_18_a_spent_budget_fails_and_keeps_the_cause() -> None:
    action = decided(State.STOPPING, outcome="backoff", attempt=3, error=RETRYABLE)
    assert entered(action) == ("failed", None)
    assert action.status is not None
    assert action.status.error is not None
    assert action.status.error.code == "restart_budget_spent"
    assert "internal_error: a race was lost" in action.status.error.detail


def test_19_a_failed_launch_waits_for_the_next() -> None:
    action = decided(State.STOPPING, outcome="backoff", attempt=2, error=RETRYABLE)
    assert entered(action) == ("backoff", None)
    assert action.status is not None
    assert (action.status.attempt, action.status.next_attempt_ms) == (3, NOW + 3_000)


@pytest.mark.parametrize("state", [State.BACKOFF, State.FAILED])
def test_20_a_broken_query_can_be_stopped(state: State) -> None:
    action = decided(state, wants="stopped", error=FATAL)
    assert entered(action) == ("stopped", None)
    assert action.is_lease_released


def test_20_a_query_in_backoff_can_be_paused_and_a_failed_one_stays_failed() -> None:
    assert entered(decided(State.BACKOFF, wants="paused", next_attempt_ms=NOW + 9)) == ("paused", None)
    assert decided(State.FAILED, wants="paused") == Action(effect=Effect.RELEASE)


@pytest.mark.parametrize("state", [State.BACKOFF, State.FAILED])
def test_21_an_edit_or_a_restart_is_honoured_at_once(state: State) -> None:
    action = decided(state, attempt=3, error=RETRYABLE, next_attempt_ms=NOW + 9, desired=DesiredState(Desired.RUNNING, 2, 2))
    assert entered(action) == ("starting", None)
    assert action.status is not None
    assert (action.status.attempt, action.status.error, action.status.observed_nonce) == (0, None, 2)


@pytest.mark.parametrize(("due_in_ms", "rule"), [(1, ""), (0, "22"), (-1, "22"), (60_000, ""), (3_600_000, "22")])
def test_22_the_next_attempt_begins_when_it_is_due(due_in_ms: int, rule: str) -> None:
    action = decided(State.BACKOFF, attempt=2, error=RETRYABLE, next_attempt_ms=NOW + due_in_ms)
    assert action.rule == rule
    if action.status is not None:
        assert (action.status.attempt, action.status.epoch, action.status.error) == (2, 8, RETRYABLE)


def test_without_the_lease_a_live_handle_is_stopped_and_nothing_is_written() -> None:
    assert decided(State.RUNNING, handle=RUNS, is_lease_mine=False) == Action("L", effect=Effect.STOP)
    assert decided(State.RUNNING, handle=dead(FATAL), is_lease_mine=False) == Action("L", effect=Effect.FORGET)


def test_a_draining_driver_hands_its_queries_over_without_spending_an_attempt() -> None:
    assert entered(decided(State.RUNNING, handle=RUNS, is_draining=True)) == ("stopping", "restart")
    assert decided(State.STOPPING, outcome="restart", is_draining=True) == Action("D", effect=Effect.RELEASE)
    assert decided(State.PAUSED, wants="paused", is_draining=True) == Action("D", effect=Effect.RELEASE)


@pytest.mark.parametrize(
    ("attempt", "jitter", "expected"), [(0, 0.0, 500), (0, 1.0, 1_000), (3, 0.5, 6_000), (6, 1.0, 60_000), (5_000, 0.0, 30_000)]
)
def test_backoff_doubles_up_to_a_minute_with_half_of_it_random(attempt: int, jitter: float, expected: int) -> None:
    assert backoff_ms(attempt, Limits(), jitter) == expected

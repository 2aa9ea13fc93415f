"""The lifecycle of a query: its states and their transitions.

Pure. Knows no SQL, no Spark, no thread and no clock: time and jitter are arguments. A driver reads one row (the user's *desired state* and the
*status* that drivers write), asks its host for the report on the query's own handle (``HandleReport``), calls ``decide`` and carries out the
action: first the guarded write of ``action.status``, then ``action.effect``. The intent is written before the effect. After a crash between the
two, the row says ``starting, epoch 7`` with nothing running. The next owner of the lease sees that as lost and tears it down.

::

    stopped ──2──▶ starting ──8──▶ running ⟲ 12
                      │               │
                      └──4 5 6 7 9 D──┴──▶ stopping (outcome) ⟲ 13 14
                                               │
            ┌─────────┬─────────┬──────────────┼─────────┐
            ▼ 15      ▼ 10      ▼ 16           ▼ 17 18   ▼ 19 23 24
         stopped    paused   starting        failed   backoff

    paused ──────────11──▶ starting          paused ────────────────────4──▶ stopped
    backoff ─────21, 22──▶ starting          backoff, failed ──────────20──▶ stopped
    failed ──────────21──▶ starting          stopped, backoff, failed ──2, 20, 21──▶ paused

Every exit from a live state passes through ``stopping`` with a stored outcome. ``paused`` keeps the lease and its state but runs nothing;
``stopped`` and ``failed`` have released the lease. A query that is stopped during a scheduling cycle of a shared slot leaves a worker behind
that may still write files (``HandleReport.is_leaving``). This delays no stop and no launch, because nothing of that cycle is committed. But the
lease stays, so that the query's files are not removed before the cycle is over, or before it is given up (``REST_STALLS``). Only a driver that
drains releases the lease: its workers end with it.

==  =================  ==========================================================  ==========================================
 #  from               when (the first that matches)                               then
==  =================  ==========================================================  ==========================================
 1  at rest            a handle of this query is alive                             stop that orphan first
 2  stopped            running or paused is desired                                starting (epoch + 1, attempt 0) or paused
 3  stopped            deleted, and nothing is leaving                             purge the state, then the row
 4  starting, running  stopped is desired                                          stopping (stopped); paused: stopped
 5  starting, running  generation or nonce differs from the observed one           stopping (restart); paused: observed
 6  starting, running  the handle died and a retry cannot help                     stopping (failed)
 7  starting, running  the handle died, or starts for too long                     stopping (backoff)
7a  starting, running  its driver is lost, no launch and no batch was running      stopping (restart)
7b  starting, running  its driver is lost, the query ran alone                     stopping (backoff)
7c  starting, running  its driver is lost otherwise                                stopping (lost)
 8  starting           the handle runs                                             running, without an error
 9  starting, running  paused is desired                                           stopping (paused)
10  stopping           paused or restart was the outcome, gone, paused is desired  paused
11  paused             running is desired                                          starting (epoch + 1, attempt 0)
12  running            healthy for ``healthy_after_ms``, attempt or losses > 0     attempt 0, losses 0
12a running            losses or outages > 0, a batch is committed or none there   losses 0, outages 0
13  stopping           stopped is desired, another outcome is stored               outcome stopped: a user's stop always wins
14  stopping           the handle is alive                                         stop it; after ``stop_timeout_ms`` drain
15  stopping           outcome stopped, gone                                       stopped, lease released
16  stopping           outcome restart or paused, gone, running is desired         starting (epoch + 1, attempt 0; 7a: as it was)
17  stopping           outcome failed, gone                                        failed, lease released
24  stopping           outcome backoff, gone, an external system was unreachable   backoff (same attempt, outages + 1)
18  stopping           outcome backoff, gone, the budget is spent                  failed (``restart_budget_spent``)
19  stopping           outcome backoff, gone                                       backoff (attempt + 1)
20  backoff, failed    stopped is desired (backoff: or paused)                     stopped (paused)
21  backoff, failed    generation or nonce differs                                 starting (epoch + 1, attempt 0) or paused
22  backoff            ``next_attempt_ms`` has come, and its turn                  starting (epoch + 1)
23  stopping           outcome lost, gone                                          backoff (same attempt, losses + 1, due at once)
==  =================  ==========================================================  ==========================================

Rules 7a to 7c, 12a and 23 find the query that kills its driver: ``app.catalog.drivers.crash_suspects``. Rule 24 keeps the restart budget for
failures of the query itself: ``app.catalog.drivers.states``.

Two conditions of the driver itself come before the table. Without the lease (L) nothing is written: the handle is stopped, then forgotten. While
the driver drains (D) nothing is launched: live queries go to stopping (restart), queries at rest release their leases. So the next driver
continues where this one ended, and no attempt is spent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

from app.catalog.drivers.crash_suspects import LOST, is_alone, is_crash_suspect, is_lost, one_more
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
    next_outages,
)


class Effect(StrEnum):
    """The driver's step after the write."""

    NONE = "none"
    LAUNCH = "launch"
    STOP = "stop"
    FORGET = "forget"
    RELEASE = "release"
    DRAIN = "drain"
    PURGE = "purge"


START_TIMEOUT = ErrorReport(
    code="start_timeout", domain="internal", is_retryable=True, detail="the query did not start within start_timeout_ms"
)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All facts for one decision.

    Attributes:
        jitter: a random number in [0, 1), used for the next backoff.
        was_busy: whether its launch had begun, or had a planned batch that was not committed, as far as known
            (``app.driver.launches.spark_runner.is_unfinished``); set only for a query that ``is_lost``.
        has_progressed: whether its handle runs and has committed a batch, or found nothing to read.
        is_turn: whether a suspect may start.
    """

    desired: DesiredState
    status: Status
    handle: HandleReport
    is_lease_mine: bool
    is_draining: bool
    now_ms: int
    jitter: float
    was_busy: bool = True
    has_progressed: bool = False
    is_turn: bool = True


@dataclass(frozen=True, slots=True)
class Limits:
    """Timings and the restart budget.

    Attributes:
        max_attempts: failed launches in a row before ``failed``; None = for ever.
    """

    start_timeout_ms: int = 120_000
    stop_timeout_ms: int = 30_000
    healthy_after_ms: int = 120_000
    max_attempts: int | None = 10
    backoff_first_ms: int = 1_000
    backoff_longest_ms: int = 60_000


@dataclass(frozen=True, slots=True)
class Action:
    """The result of a decision: write ``status`` if it is not None, then carry out ``effect``.

    Attributes:
        rule: row of the table in the module docstring, or L, D; "" if there is nothing to do.
        status: the new row; None: it does not change.
        is_lease_released: whether the write also releases the lease.
    """

    rule: str = ""
    status: Status | None = None
    effect: Effect = Effect.NONE
    is_lease_released: bool = False


WAIT = Action()
CLEAN: Mapping[str, object] = MappingProxyType({"attempt": 0, "losses": 0, "outages": 0, "error": None})
"""The values of a row without past failures."""


def backoff_ms(attempt: int, limits: Limits, jitter: float) -> int:
    """Return the wait before launch ``attempt + 1``: half of it is fixed, half is random."""
    whole = min(limits.backoff_longest_ms, limits.backoff_first_ms * 2 ** min(attempt, 30))
    return int(whole / 2 + whole / 2 * jitter)


def transition(snapshot: Snapshot, state: State, **changes: object) -> Status:
    """Return the row after entering ``state``: values of the state before are cleared, then ``changes`` apply."""
    status = snapshot.status
    since_ms = status.state_since_ms if state is status.state else snapshot.now_ms
    entered = replace(status, state=state, outcome=None, next_attempt_ms=None, state_since_ms=since_ms)
    return replace(entered, **changes)  # type: ignore[arg-type]


def decide(snapshot: Snapshot, limits: Limits) -> Action:
    """Return the action for a snapshot. Total and deterministic; the first rule that matches wins."""
    if not snapshot.is_lease_mine:
        return _without_lease(snapshot, limits)
    match snapshot.status.state:
        case State.STARTING | State.RUNNING:
            return _alive(snapshot, limits)
        case State.STOPPING:
            return _stopping(snapshot, limits)
        case State.PAUSED:
            return _orphan(snapshot, limits) or _paused(snapshot)
        case State.STOPPED:
            return _orphan(snapshot, limits) or _stopped(snapshot)
        case State.BACKOFF | State.FAILED:
            return _orphan(snapshot, limits) or _broken(snapshot, limits)


def _without_lease(snapshot: Snapshot, limits: Limits) -> Action:
    """L: the row belongs to another driver. Nothing is written; a live handle here is stopped."""
    if snapshot.handle.is_live:
        return _stop(snapshot, limits, "L")
    return Action("L", effect=Effect.FORGET)


def _alive(snapshot: Snapshot, limits: Limits) -> Action:
    """Rules 4 to 9 and 12, for starting and running."""
    status, desired, handle = snapshot.status, snapshot.desired, snapshot.handle
    error = handle.error if handle.kind is HandleKind.DEAD and handle.epoch == status.epoch else None
    if desired.wants is Desired.STOPPED:
        return _teardown(snapshot, "4", Outcome.STOPPED)
    if _differs(snapshot):
        return _teardown(snapshot, "5", Outcome.RESTART)
    if is_lost(status, handle):
        return _lost(snapshot, limits)
    if error is not None and not error.is_retryable:
        return _teardown(snapshot, "6", Outcome.FAILED, error)
    if error is not None:
        return _teardown(snapshot, "7", Outcome.BACKOFF, error)
    if handle.kind is HandleKind.LAUNCHING and handle.age_ms is not None and handle.age_ms >= limits.start_timeout_ms:
        return _teardown(snapshot, "7", Outcome.BACKOFF, START_TIMEOUT)
    if snapshot.is_draining or handle.kind is HandleKind.STOPPING:
        return _teardown(snapshot, "D", Outcome.RESTART)
    if desired.wants is Desired.PAUSED:
        return _teardown(snapshot, "9", Outcome.PAUSED)
    if status.state is State.STARTING and handle.kind is HandleKind.RUNNING:
        return Action("8", transition(snapshot, State.RUNNING, error=None))
    return _getting_well(snapshot, limits)


def _lost(snapshot: Snapshot, limits: Limits) -> Action:
    """Rules 7a to 7c: a query at rest is not the cause, a query that ran alone is."""
    status = snapshot.status
    if not snapshot.was_busy:
        return _teardown(snapshot, "7a", Outcome.RESTART, LOST)
    if is_alone(status, snapshot.now_ms, limits.healthy_after_ms):
        return _teardown(snapshot, "7b", Outcome.BACKOFF, LOST)
    return _teardown(snapshot, "7c", Outcome.LOST, LOST)


def _getting_well(snapshot: Snapshot, limits: Limits) -> Action:
    """Rules 12 and 12a: earlier failures are cleared."""
    status = snapshot.status
    if status.state is not State.RUNNING:
        return WAIT
    if (status.losses > 0 or status.outages > 0) and snapshot.has_progressed:
        return Action("12a", transition(snapshot, State.RUNNING, losses=0, outages=0))
    is_tried = status.attempt > 0 or status.losses > 0 or status.outages > 0
    if is_tried and snapshot.now_ms - status.state_since_ms >= limits.healthy_after_ms:
        return Action("12", transition(snapshot, State.RUNNING, **CLEAN))
    return WAIT


def _stopping(snapshot: Snapshot, limits: Limits) -> Action:
    """Rules 10, 13 to 19, 23 and 24: every teardown ends here."""
    status, wants = snapshot.status, snapshot.desired.wants
    if wants is Desired.STOPPED and status.outcome is not Outcome.STOPPED:
        return Action("13", transition(snapshot, State.STOPPING, outcome=Outcome.STOPPED))
    if snapshot.handle.is_live:
        return _stop(snapshot, limits, "14")
    match status.outcome:
        case Outcome.FAILED:
            return _at_rest("17", snapshot, State.FAILED)
        case Outcome.BACKOFF if is_outage(status.error):
            due_ms = snapshot.now_ms + backoff_ms(status.outages, limits, snapshot.jitter)
            outages = next_outages(status.outages)
            return Action("24", transition(snapshot, State.BACKOFF, outages=outages, next_attempt_ms=due_ms))
        case Outcome.BACKOFF:
            return _spend_attempt(snapshot, limits)
        case Outcome.LOST:
            losses = one_more(status.losses)
            return Action("23", transition(snapshot, State.BACKOFF, losses=losses, next_attempt_ms=snapshot.now_ms))
        case Outcome.RESTART | Outcome.PAUSED if wants is Desired.PAUSED:
            return Action("10", transition(snapshot, State.PAUSED, error=None))
        case Outcome.RESTART | Outcome.PAUSED if wants is Desired.RUNNING:
            return _launch(snapshot, "16", is_retry=_is_of_loss(snapshot))
        case _:
            return _at_rest("15", snapshot, State.STOPPED, **CLEAN)


def _spend_attempt(snapshot: Snapshot, limits: Limits) -> Action:
    """Rules 18 and 19: one more failed launch."""
    status = snapshot.status
    attempt = status.attempt + 1
    if limits.max_attempts is not None and attempt > limits.max_attempts:
        cause = status.error or LOST
        spent = f"{limits.max_attempts} launches in a row failed; the last: {cause.code}: {cause.detail}"
        error = ErrorReport("restart_budget_spent", cause.domain, is_retryable=False, detail=spent, problems=cause.problems)
        return _at_rest("18", snapshot, State.FAILED, attempt=attempt, error=error)
    due_ms = snapshot.now_ms + backoff_ms(status.attempt, limits, snapshot.jitter)
    losses = one_more(status.losses) if status.error is not None and status.error.code == LOST.code else status.losses
    return Action("19", transition(snapshot, State.BACKOFF, attempt=attempt, losses=losses, next_attempt_ms=due_ms))


def _stopped(snapshot: Snapshot) -> Action:
    """Rules 2 and 3. A query that is to stay stopped releases its lease."""
    match snapshot.desired.wants:
        case Desired.RUNNING:
            return _launch(snapshot, "2")
        case Desired.PAUSED:
            return _release_if_draining(snapshot) or Action("2", _observed(snapshot, State.PAUSED))
        case Desired.STOPPED if snapshot.handle.is_leaving:
            return WAIT
        case Desired.STOPPED if snapshot.desired.is_deleted:
            return Action("3", effect=Effect.PURGE)
        case Desired.STOPPED:
            return Action(effect=Effect.RELEASE)


def _paused(snapshot: Snapshot) -> Action:
    """Rules 4, 5 and 11 without a running handle, so without a teardown."""
    match snapshot.desired.wants:
        case Desired.STOPPED:
            return _at_rest("4", snapshot, State.STOPPED)
        case Desired.RUNNING:
            return _launch(snapshot, "11")
        case Desired.PAUSED if _differs(snapshot):
            return Action("5", _observed(snapshot, State.PAUSED))
        case Desired.PAUSED:
            return _release_if_draining(snapshot) or WAIT


def _broken(snapshot: Snapshot, limits: Limits) -> Action:
    """Rules 20 to 22, for backoff and failed."""
    status, wants = snapshot.status, snapshot.desired.wants
    if wants is Desired.STOPPED:
        return _at_rest("20", snapshot, State.STOPPED, **CLEAN)
    if _differs(snapshot) and wants is Desired.RUNNING:
        return _launch(snapshot, "21")
    if _differs(snapshot):
        return Action("21", _observed(snapshot, State.PAUSED))
    if status.state is State.FAILED:
        return WAIT if snapshot.handle.is_leaving else Action(effect=Effect.RELEASE)
    if wants is Desired.PAUSED:
        return Action("20", transition(snapshot, State.PAUSED))
    # Due; or further away than the longest wait: the database's clock was set back.
    is_due = status.next_attempt_ms is None or not 0 < status.next_attempt_ms - snapshot.now_ms <= limits.backoff_longest_ms
    if is_due and (snapshot.is_turn or not is_crash_suspect(status)):
        return _launch(snapshot, "22", is_retry=True)
    return _release_if_draining(snapshot) or WAIT


def _orphan(snapshot: Snapshot, limits: Limits) -> Action | None:
    """Rule 1: no handle may be alive in a state at rest."""
    return _stop(snapshot, limits, "1") if snapshot.handle.is_live else None


def _stop(snapshot: Snapshot, limits: Limits, rule: str) -> Action:
    """Ask a live handle to stop; if it does not stop in time, the driver must end."""
    handle = snapshot.handle
    if handle.kind is not HandleKind.STOPPING:
        return Action(rule, effect=Effect.STOP)
    if handle.age_ms is not None and handle.age_ms >= limits.stop_timeout_ms:
        return Action(rule, effect=Effect.DRAIN)
    return WAIT


def _teardown(snapshot: Snapshot, rule: str, outcome: Outcome, error: ErrorReport | None = None) -> Action:
    """Enter ``stopping``; a teardown without an error keeps the earlier one."""
    kept_error = error if error is not None else snapshot.status.error
    return Action(rule, transition(snapshot, State.STOPPING, outcome=outcome, error=kept_error))


def _launch(snapshot: Snapshot, rule: str, *, is_retry: bool = False) -> Action:
    """Write the intent and the next epoch, then launch; a draining driver leaves this to the next one."""
    if snapshot.is_draining:
        return Action("D", effect=Effect.RELEASE)
    status = snapshot.status
    counted = {"attempt": status.attempt, "losses": status.losses, "outages": status.outages, "error": status.error}
    failures = counted if is_retry else {}
    return Action(rule, _observed(snapshot, State.STARTING, epoch=status.epoch + 1, **failures), Effect.LAUNCH)


def _at_rest(rule: str, snapshot: Snapshot, state: State, **changes: object) -> Action:
    """Enter a state without an owner; the lease stays until nothing is leaving."""
    return Action(rule, transition(snapshot, state, **changes), is_lease_released=not snapshot.handle.is_leaving)


def _release_if_draining(snapshot: Snapshot) -> Action | None:
    return Action("D", effect=Effect.RELEASE) if snapshot.is_draining else None


def _observed(snapshot: Snapshot, state: State, **changes: object) -> Status:
    """Enter ``state`` with the present definition and nonce; only ``changes`` remain of earlier failures."""
    desired = snapshot.desired
    observed = {"observed_generation": desired.generation, "observed_nonce": desired.nonce}
    return transition(snapshot, state, **{**CLEAN, **observed, **changes})


def _is_of_loss(snapshot: Snapshot) -> bool:
    """Whether a restart is by rule 7a and not by an edit of the desired state: it neither adds to the counted failures nor clears them."""
    error = snapshot.status.error
    return error is not None and error.code == LOST.code and not _differs(snapshot)


def _differs(snapshot: Snapshot) -> bool:
    status, desired = snapshot.status, snapshot.desired
    return (status.observed_generation, status.observed_nonce) != (desired.generation, desired.nonce)

"""The life of a query: what its state is, what may follow, and nothing else.

Pure. Knows no SQL, no Spark, no thread and no clock: time and jitter are arguments. A driver reads one row (the *wish* of the user and
the *status* written by drivers), asks its host how the query's own handle is (``HandleReport``), calls ``decide`` and does what it says:
first the guarded write of ``transition(status, action)``, then ``action.effect``. Intent before effect: a crash between the two leaves
a row that says ``starting, epoch 7`` with nothing running, which the next holder of the lease sees as lost and tears down.

::

                       2, 21, 22 (11, 16)            8
      stopped ───────────────────────────▶ starting ───▶ running ──12──┐
       ▲  │ ▲                                 │    │        │  ▲───────┘
       │  │ └──────────────15──────────────┐  │    │        │
       │  2                                │  └────┴─4 5 6 7 9 (D)
       │  ▼                                │               ▼
       │ paused ◀─────────────10──────── stopping (outcome) ──16──▶ starting
       │  │                                │       │
       20 └─4─▶ stopped                  18, 17    19
       │                                   ▼       ▼
       └──────────────────────────────── failed  backoff ──21, 22──▶ starting

Every exit of something that lives passes through ``stopping`` with a remembered outcome. ``paused`` holds the lease and its state but
runs nothing; ``stopped`` and ``failed`` have given the lease back.

==  =================  ==========================================================  ==========================================
 #  from               when (the first that matches)                               then
==  =================  ==========================================================  ==========================================
 1  at rest            a handle of this query is alive                             stop that orphan first
 2  stopped            running or paused is wanted                                 starting (epoch + 1, attempt 0) or paused
 3  stopped            deleted                                                     purge the state, then the row
 4  starting, running  stopped is wanted                                           stopping (stopped); paused: stopped
 5  starting, running  the handle died and a retry cannot help                     stopping (failed)
 6  starting, running  generation or nonce differs from the observed one           stopping (restart); paused: observed
 7  starting, running  the handle is lost, died, or starts for too long            stopping (backoff)
 8  starting           the handle runs                                             running
 9  starting, running  paused is wanted                                            stopping (paused)
10  stopping           paused or restart was the outcome, gone, paused is wanted   paused
11  paused             running is wanted                                           starting (epoch + 1, attempt 0)
12  running            healthy for ``healthy_after`` and attempt > 0               attempt 0
13  stopping           stopped is wanted, another outcome is noted                 outcome stopped: a user's stop always wins
14  stopping           the handle is alive                                         stop it; after ``stop_timeout`` drain
15  stopping           outcome stopped, gone                                       stopped, lease released
16  stopping           outcome restart or paused, gone, running is wanted          starting (epoch + 1, attempt 0)
17  stopping           outcome failed, gone                                        failed, lease released
18  stopping           outcome backoff, gone, the budget is spent                  failed (``restart_budget_spent``)
19  stopping           outcome backoff, gone                                       backoff (attempt + 1)
20  backoff, failed    stopped is wanted (backoff: or paused)                      stopped (paused)
21  backoff, failed    generation or nonce differs                                 starting (epoch + 1, attempt 0) or paused
22  backoff            ``next_attempt_ms`` has come                                starting (epoch + 1)
==  =================  ==========================================================  ==========================================

Two conditions of the driver itself stand above the table. Without the lease (L) nothing is written: the handle is stopped, then
forgotten. While the driver drains (D) nothing is launched: what lives goes to stopping (restart), what is gone gives its lease back,
so that the successor goes on where this one ended without spending an attempt.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class State(StrEnum):
    """Observed state of a query."""

    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    BACKOFF = "backoff"
    FAILED = "failed"


class Desired(StrEnum):
    """What the user wishes."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


class Outcome(StrEnum):
    """Where ``stopping`` leads to."""

    STOPPED = "stopped"
    PAUSED = "paused"
    RESTART = "restart"
    BACKOFF = "backoff"
    FAILED = "failed"


class HandleKind(StrEnum):
    """How the streaming query of this driver is. LAUNCHING, RUNNING and STOPPING are alive."""

    ABSENT = "absent"
    LAUNCHING = "launching"
    RUNNING = "running"
    STOPPING = "stopping"
    DEAD = "dead"


class Effect(StrEnum):
    """What the driver does after the write."""

    NONE = "none"
    LAUNCH = "launch"
    STOP = "stop"
    FORGET = "forget"
    RELEASE = "release"
    DRAIN = "drain"
    PURGE = "purge"


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """Why a query is not well.

    Attributes:
        code: stable snake_case code.
        domain: user, external or internal.
        is_retryable: whether the next launch may go better with nothing changed.
        detail: what happened and what to do.
        problems: the faults of a refused definition as (pointer, code, detail).
    """

    code: str
    domain: str
    is_retryable: bool
    detail: str
    problems: tuple[tuple[str, str, str], ...] = ()


LOST = ErrorReport(
    "driver_lost", "internal", True, "the driver that ran this query is gone; the query goes on from its last committed batch"
)
START_TIMEOUT = ErrorReport("start_timeout", "internal", True, "the query did not start within start_timeout")


@dataclass(frozen=True, slots=True)
class Wish:
    """What the API wrote. A deleted query is one that shall be stopped, then purged."""

    desired: Desired
    generation: int
    nonce: int
    is_deleted: bool = False

    @property
    def wants(self) -> Desired:
        """The desired state, with deletion read as stopped."""
        return Desired.STOPPED if self.is_deleted else self.desired


@dataclass(frozen=True, slots=True)
class Status:
    """What drivers write: the values of one ``query_status`` row that decisions are made on.

    Attributes:
        outcome: set in ``stopping`` only.
        epoch: number of the last launch, 0 before the first.
        attempt: failed launches in a row.
        next_attempt_ms: set in ``backoff`` only.
        state_since_ms: when the state was entered.
    """

    state: State = State.STOPPED
    outcome: Outcome | None = None
    epoch: int = 0
    attempt: int = 0
    next_attempt_ms: int | None = None
    state_since_ms: int = 0
    observed_generation: int = 0
    observed_nonce: int = 0
    error: ErrorReport | None = None


@dataclass(frozen=True, slots=True)
class HandleReport:
    """How this driver's handle of the query is.

    Attributes:
        epoch: the launch it belongs to.
        age_ms: how long it has been in this kind; None while a launch waits for its turn.
        error: why it is dead; None for a handle that ended without saying.
    """

    kind: HandleKind = HandleKind.ABSENT
    epoch: int = 0
    age_ms: int | None = None
    error: ErrorReport | None = None

    @property
    def is_live(self) -> bool:
        """Whether it may still read or write."""
        return self.kind in (HandleKind.LAUNCHING, HandleKind.RUNNING, HandleKind.STOPPING)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything one decision is made on.

    Attributes:
        jitter: a random number in [0, 1), used for the next backoff.
    """

    wish: Wish
    status: Status
    handle: HandleReport
    is_lease_mine: bool
    is_draining: bool
    now_ms: int
    jitter: float


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
    """What to do: write ``status`` if it is not None, then do ``effect``.

    Attributes:
        rule: row of the table in the module docstring, or L, D; "" when there is nothing to do.
        status: the row as it shall be; None = it stays.
        is_lease_released: the write also gives the lease back.
    """

    rule: str = ""
    status: Status | None = None
    effect: Effect = Effect.NONE
    is_lease_released: bool = False


WAIT = Action()
AT_REST = (State.STOPPED, State.PAUSED, State.BACKOFF, State.FAILED)


def backoff_ms(attempt: int, limits: Limits, jitter: float) -> int:
    """Give the wait before launch ``attempt + 1``: half of it is certain, half is random."""
    whole = min(limits.backoff_longest_ms, limits.backoff_first_ms * 2 ** min(attempt, 30))
    return int(whole / 2 + whole / 2 * jitter)


def transition(status: Status, snapshot: Snapshot, action_state: State, **changes: object) -> Status:
    """Give the row after entering ``action_state``: fields that belong to the state left are cleared."""
    base = replace(
        status,
        state=action_state,
        outcome=None,
        next_attempt_ms=None,
        state_since_ms=snapshot.now_ms if action_state is not status.state else status.state_since_ms,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def decide(snapshot: Snapshot, limits: Limits) -> Action:
    """Say what follows from a snapshot. Total; deterministic; the first rule that matches wins."""
    if not snapshot.is_lease_mine:
        return _without_lease(snapshot, limits)
    match snapshot.status.state:
        case State.STARTING | State.RUNNING:
            return _alive(snapshot, limits)
        case State.STOPPING:
            return _stopping(snapshot, limits)
        case _:
            return _at_rest(snapshot, limits)

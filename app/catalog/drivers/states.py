"""The words of a query's life as values: its states, the desired state, the row drivers write, the report on a handle.

Pure values; what may follow from what is ``lifecycle``.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    """What the user wants."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


class Outcome(StrEnum):
    """Where ``stopping`` leads to."""

    STOPPED = "stopped"
    PAUSED = "paused"
    RESTART = "restart"
    BACKOFF = "backoff"
    LOST = "lost"
    FAILED = "failed"


class HandleKind(StrEnum):
    """How the streaming query of this driver is. LAUNCHING, RUNNING and STOPPING are alive."""

    ABSENT = "absent"
    LAUNCHING = "launching"
    RUNNING = "running"
    STOPPING = "stopping"
    DEAD = "dead"


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


@dataclass(frozen=True, slots=True)
class DesiredState:
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
        losses: how often in a row its driver was lost before a batch of the query was committed.
        outages: launches in a row that ended because a system outside was away.
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
    losses: int = 0
    outages: int = 0


@dataclass(frozen=True, slots=True)
class HandleReport:
    """How this driver's handle of the query is.

    Attributes:
        epoch: the launch it belongs to.
        age_ms: how long it has been in this kind; None while a launch waits for its turn.
        error: why it is dead; None for a handle that ended without saying.
        is_leaving: something may still write files for a launch that was stopped; what it writes counts nowhere.
    """

    kind: HandleKind = HandleKind.ABSENT
    epoch: int = 0
    age_ms: int | None = None
    error: ErrorReport | None = None
    is_leaving: bool = False

    @property
    def is_live(self) -> bool:
        """Whether it may still read or write."""
        return self.kind in (HandleKind.LAUNCHING, HandleKind.RUNNING, HandleKind.STOPPING)

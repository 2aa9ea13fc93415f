"""The values of a query's lifecycle: its states, the desired state, the row that drivers write, the report on a handle.

Pure; ``lifecycle`` has the transitions.

A broker, a registry, a bucket, a database or a disk may be unreachable for hours, and no launch of a query changes that. So an outage spends no
attempt: the query is launched again with backoff as long as the outage lasts (``app.catalog.drivers.lifecycle``, rule 24). The death of a
worker is no outage, though it is an external error: the query may have caused it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


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
    """The state that the user asked for."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


class Outcome(StrEnum):
    """The state after ``stopping``."""

    STOPPED = "stopped"
    PAUSED = "paused"
    RESTART = "restart"
    BACKOFF = "backoff"
    LOST = "lost"
    FAILED = "failed"


class HandleKind(StrEnum):
    """State of this driver's streaming query. LAUNCHING, RUNNING and STOPPING are alive."""

    ABSENT = "absent"
    LAUNCHING = "launching"
    RUNNING = "running"
    STOPPING = "stopping"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """Why a query failed.

    Attributes:
        code: stable snake_case code.
        domain: user, external or internal.
        is_retryable: whether the next launch may succeed without a change.
        detail: the fault and its cure.
        problems: the faults of a refused definition as (pointer, code, detail).
    """

    code: str
    domain: str
    is_retryable: bool
    detail: str
    problems: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class DesiredState:
    """The values that the API writes. A deleted query is stopped, then purged."""

    desired: Desired
    generation: int
    nonce: int
    is_deleted: bool = False

    @property
    def wants(self) -> Desired:
        """The desired state; a deleted query is to be stopped."""
        return Desired.STOPPED if self.is_deleted else self.desired


@dataclass(frozen=True, slots=True)
class Status:
    """The values of one ``query_status`` row, which drivers write and decisions use.

    Attributes:
        outcome: set in ``stopping`` only.
        epoch: number of the last launch, 0 before the first.
        attempt: failed launches in a row.
        losses: how often in a row its driver was lost before a batch of the query was committed.
        outages: launches in a row that ended because an external system was unreachable.
        next_attempt_ms: set in ``backoff`` only.
        state_since_ms: when the state began.
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
    """The report on this driver's handle of the query.

    Attributes:
        epoch: of its launch.
        age_ms: time since it entered this kind; None while a launch waits in the queue.
        error: why it is dead; None for a handle that ended without an error.
        is_leaving: a stopped launch may still write files; they are never committed.
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


_OF_THE_QUERY: Final = frozenset({"worker_lost", "worker_crashed", "worker_stalled", "worker_out_of_memory"})
"""External errors that the query itself may have caused."""

MOST_OUTAGES: Final = 30
"""Highest count: the wait has reached its maximum by then."""


def is_outage(error: ErrorReport | None) -> bool:
    """Whether an error comes from an external system that may recover by itself."""
    return error is not None and error.domain == "external" and error.is_retryable and error.code not in _OF_THE_QUERY


def next_outages(outages: int) -> int:
    """Return the number of launches in a row that ended in an outage, plus one."""
    return min(outages + 1, MOST_OUTAGES)

"""Which query has killed its driver. Pure: what is decided with it is ``app.catalog.drivers.lifecycle``.

When a driver dies, any query with a batch under way may be the cause. The first time all of them start again together. Queries whose
driver dies again before they commit are suspects: they start in groups, each when the one before has committed, beside those above
suspicion. The members of a group in which the driver dies meet again in smaller ones, in the end alone: who was alone (``is_alone``) is the
cause and spends an attempt. A query that had nothing under way, neither a batch nor a launch that had taken its fence, starts at once and
spends none. Groups, because innocents are many and go on sooner together: after kills from outside all are suspects.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from app.catalog.drivers.states import ErrorReport, HandleKind, HandleReport, State, Status

LOST = ErrorReport(
    code="driver_lost",
    domain="internal",
    is_retryable=True,
    detail="the driver that ran this query is gone; the query goes on from its last committed batch",
)
SUSPECT_AFTER = 2
"""Losses of a driver in a row, without a commit in between, after which a query is a suspect."""

FIRST_GROUP = 8
"""How many suspects start together at first; half as many with each further loss."""

FIRST_TURN_MS = 10_000
"""How long a suspect then runs before others may start; twice as long with each further loss, for what kills slowly."""

MOST_LOSSES = 8
"""Counted no further: the turn is as long as ``healthy_after_ms`` by then."""


def is_lost(status: Status, handle: HandleReport) -> bool:
    """Whether a query that should be alive has lost its driver, or its driver has lost the engine."""
    is_alive = status.state in (State.STARTING, State.RUNNING)
    is_ours = handle.kind is not HandleKind.ABSENT and handle.epoch == status.epoch
    is_dead = handle.kind is HandleKind.DEAD and (handle.error is None or handle.error.code == LOST.code)
    return is_alive and (not is_ours or is_dead)


def is_crash_suspect(status: Status) -> bool:
    """Whether a query starts only when it has its turn."""
    return status.losses >= SUSPECT_AFTER


def group_of(status: Status) -> int:
    """Return how many suspects may have their turn at once where this one has it."""
    return max(FIRST_GROUP >> (status.losses - SUSPECT_AFTER), 1)


def has_turn(status: Status, now_ms: int, longest_ms: int) -> bool:
    """Whether a suspect has its turn now, which lasts until it commits, and at most ``longest_ms``."""
    if not is_crash_suspect(status) or status.state not in (State.STARTING, State.RUNNING, State.STOPPING):
        return False
    turn_ms = min(FIRST_TURN_MS * 2 ** (status.losses - SUSPECT_AFTER), longest_ms)
    return status.state is not State.RUNNING or now_ms - status.state_since_ms < turn_ms


def is_alone(status: Status, now_ms: int, longest_ms: int) -> bool:
    """Whether a suspect has its turn with no other one beside it."""
    return has_turn(status, now_ms, longest_ms) and group_of(status) == 1


def next_turns(waiting: Iterable[tuple[UUID, Status]], with_turn: Iterable[Status]) -> frozenset[UUID]:
    """Say which suspects may start now: those that have failed least first, as many as their groups hold.

    Args:
        waiting: suspects that are due.
        with_turn: those that have their turn already.
    """
    groups = [group_of(status) for status in with_turn]
    chosen: set[UUID] = set()
    for query_id, status in sorted(waiting, key=lambda each: (each[1].attempt, each[1].losses, each[0])):
        groups.append(group_of(status))
        if len(groups) > min(groups):
            break
        chosen.add(query_id)
    return frozenset(chosen)


def one_more(losses: int) -> int:
    """Return how many losses in a row there are with one more."""
    return min(losses + 1, MOST_LOSSES)

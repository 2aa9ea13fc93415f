"""Finds the query that kills its driver. Pure: ``app.catalog.drivers.lifecycle`` decides with it.

When a driver dies, any query with a running batch may be the cause. The first time all of them start again together. Queries whose driver dies
again before they commit are suspects. They start in groups, each when the group before has committed, besides queries that are no suspects. If
the driver dies again, the queries of that group start again in smaller groups, in the end alone. A query that was alone (``is_alone``) is the
cause and spends an attempt. A query that had nothing running, neither a batch nor a launch with its fence, starts at once and spends none. There
are groups because most suspects are innocent and continue sooner together: after kills from outside all queries are suspects.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from app.catalog.drivers.states import ErrorReport, HandleKind, HandleReport, State, Status

LOST = ErrorReport(
    code="driver_lost",
    domain="internal",
    is_retryable=True,
    detail="the driver that ran this query is gone; the query continues from its last committed batch",
)
SUSPECT_AFTER = 2
"""So many losses of a driver in a row, without a commit in between, make a query a suspect."""

FIRST_GROUP = 8
"""Suspects that start together at first; half as many with each further loss."""

FIRST_TURN_MS = 10_000
"""How long a suspect runs before others may start; twice as long with each further loss, for queries that kill slowly."""

MOST_LOSSES = 8
"""Highest count: the turn is as long as ``healthy_after_ms`` by then."""


def is_lost(status: Status, handle: HandleReport) -> bool:
    """Whether a query that should be alive has lost its driver, or its driver has lost the engine."""
    is_alive = status.state in (State.STARTING, State.RUNNING)
    is_ours = handle.kind is not HandleKind.ABSENT and handle.epoch == status.epoch
    is_dead = handle.kind is HandleKind.DEAD and (handle.error is None or handle.error.code == LOST.code)
    return is_alive and (not is_ours or is_dead)


def is_crash_suspect(status: Status) -> bool:
    """Whether a query starts only in its turn."""
    return status.losses >= SUSPECT_AFTER


def group_of(status: Status) -> int:
    """Return how many suspects may have their turn together with this one."""
    return max(FIRST_GROUP >> (status.losses - SUSPECT_AFTER), 1)


def has_turn(status: Status, now_ms: int, longest_ms: int) -> bool:
    """Whether a suspect has its turn now. The turn lasts until it commits, and at most ``longest_ms``."""
    if not is_crash_suspect(status) or status.state not in (State.STARTING, State.RUNNING, State.STOPPING):
        return False
    turn_ms = min(FIRST_TURN_MS * 2 ** (status.losses - SUSPECT_AFTER), longest_ms)
    return status.state is not State.RUNNING or now_ms - status.state_since_ms < turn_ms


def is_alone(status: Status, now_ms: int, longest_ms: int) -> bool:
    """Whether a suspect has its turn without any other suspect."""
    return has_turn(status, now_ms, longest_ms) and group_of(status) == 1


def next_turns(waiting: Iterable[tuple[UUID, Status]], with_turn: Iterable[Status]) -> frozenset[UUID]:
    """Return the suspects that may start now: those with the fewest failures first, as many as their groups allow.

    Args:
        waiting: suspects that are due.
        with_turn: suspects that have their turn already.
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
    """Return the number of losses in a row, plus one."""
    return min(losses + 1, MOST_LOSSES)

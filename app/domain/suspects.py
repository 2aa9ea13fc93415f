"""Which query has killed its driver. Pure: what is decided with it is ``app.domain.lifecycle``.

When a driver dies, any query with a batch under way may be the cause. The first time all of them start again together. Queries whose
driver dies again before they commit start one after the other (``ALONE_AFTER``), beside those above suspicion: if the driver dies once more,
the one that has its turn (``is_alone``) is the cause and spends an attempt. A query that had nothing under way,
neither a batch nor a launch that had taken its fence, starts at once and spends none.
"""

from __future__ import annotations

from app.domain.states import ErrorReport, HandleKind, HandleReport, State, Status

LOST = ErrorReport(
    code="driver_lost",
    domain="internal",
    is_retryable=True,
    detail="the driver that ran this query is gone; the query goes on from its last committed batch",
)
ALONE_AFTER = 2
"""Losses of a driver in a row, without a commit in between, after which a query starts alone."""

FIRST_TURN_MS = 10_000
"""How long such a query then runs before the next may start; twice as long with each further loss, for what kills slowly."""

MOST_LOSSES = 8
"""Counted no further: the turn is as long as ``healthy_after`` by then."""


def is_lost(status: Status, handle: HandleReport) -> bool:
    """Whether a query that should be alive has lost its driver, or its driver has lost the engine."""
    is_alive = status.state in (State.STARTING, State.RUNNING)
    is_ours = handle.kind is not HandleKind.ABSENT and handle.epoch == status.epoch
    is_dead = handle.kind is HandleKind.DEAD and (handle.error is None or handle.error.code == LOST.code)
    return is_alive and (not is_ours or is_dead)


def must_be_alone(status: Status) -> bool:
    """Whether a query starts with no other such query beside it."""
    return status.losses >= ALONE_AFTER


def is_alone(status: Status, now_ms: int, longest_ms: int) -> bool:
    """Whether a query has its turn, which lasts at most ``longest_ms``: no other query that must be alone starts meanwhile."""
    if not must_be_alone(status) or status.state not in (State.STARTING, State.RUNNING, State.STOPPING):
        return False
    turn_ms = min(FIRST_TURN_MS * 2 ** (status.losses - ALONE_AFTER), longest_ms)
    return status.state is not State.RUNNING or now_ms - status.state_since_ms < turn_ms


def one_more(losses: int) -> int:
    """Return how many losses in a row there are with one more."""
    return min(losses + 1, MOST_LOSSES)

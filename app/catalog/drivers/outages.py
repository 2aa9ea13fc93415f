"""Whether a query ended because a system outside of the service was away. Pure.

A broker, a registry, a bucket, a database or a disk may be away for hours, and no launch of a query changes that. So an outage spends no
attempt: the query is launched again with backoff for as long as the outage lasts (``app.catalog.drivers.lifecycle``, rule 24). A worker that
died counts as no outage, though it is an external error: the query may have killed it.
"""

from __future__ import annotations

from typing import Final

from app.catalog.drivers.states import ErrorReport

_OF_THE_QUERY: Final = frozenset({"worker_lost", "worker_crashed", "worker_stalled", "worker_out_of_memory"})
"""External errors that the query itself may have caused."""

MOST_OUTAGES: Final = 30
"""Counted no further: the wait has reached its longest by then."""


def is_outage(error: ErrorReport | None) -> bool:
    """Say whether an error is that of a system outside, which may come back by itself."""
    return error is not None and error.domain == "external" and error.is_retryable and error.code not in _OF_THE_QUERY


def next_outages(outages: int) -> int:
    """Return how many launches in a row have ended in an outage, with one more."""
    return min(outages + 1, MOST_OUTAGES)

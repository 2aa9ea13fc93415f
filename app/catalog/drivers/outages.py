"""Whether a query ended because an external system was unreachable. Pure.

A broker, a registry, a bucket, a database or a disk may be unreachable for hours, and no launch of a query changes that. So an outage spends no
attempt: the query is launched again with backoff as long as the outage lasts (``app.catalog.drivers.lifecycle``, rule 24). The death of a
worker is no outage, though it is an external error: the query may have caused it.
"""

from __future__ import annotations

from typing import Final

from app.catalog.drivers.states import ErrorReport

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

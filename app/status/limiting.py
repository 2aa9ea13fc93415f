"""Find what limits the rate of a query, from the measured shares of its time and its unread records. Pure.

The first rule that applies decides:

1. The query does not run: ``paused`` or ``not_running``.
2. It waits for a producer that does not work; or it has time but leaves records unread, because the query that writes another of its inputs
   is behind in event time (P9): ``upstream``.
3. Nothing was measured in the last ten seconds, and it has no commit yet or has unread records: ``unmeasured``. It works at its first batch,
   or at a long one.
4. It waits for input for a fifth of the last ten seconds or more: ``input``. It keeps up.
5. Otherwise the greatest share: ``reading``, ``tasks``, ``commit`` or ``other_queries``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from app.catalog.warned import Reason

Limit = Literal["input", "reading", "tasks", "commit", "other_queries", "upstream", "unmeasured", "paused", "not_running"]

PARTS: Final[tuple[Limit, ...]] = ("reading", "tasks", "commit", "other_queries")

SLOW_FUNCTION: Final = "slow_function"

KEEPS_UP: Final = 0.2
"""A query keeps up if it waits for input for at least this share of the time."""

WINDOW_S: Final = 10.0
"""Older measurements say nothing about now."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about a query.

    Attributes:
        is_waiting: it waits for a producer (``waits_for_producer``).
        is_merging: it reads a derived feed and other feeds.
        measured: shares of the time before its last commit (``engine.runtime.limits.time_breakdown``); None: there are none.
        age_s: time since that commit; None: there is no commit.
    """

    state: str
    is_waiting: bool
    is_merging: bool
    unread: int
    measured: Mapping[str, Any] | None
    age_s: float | None


def shares_of(facts: Facts) -> dict[Limit, float]:
    measured = _recent(facts)
    return {part: float(measured.get(part, 0.0)) for part in PARTS}


def busiest_task_of(facts: Facts) -> float | None:
    """Return the share of the busiest task in the work of all tasks; None if unknown."""
    return _recent(facts).get("busiest_task")


def functions_of(facts: Facts) -> dict[str, float]:
    """Return the share of time of each Python function, the largest first; during a long batch, the shares before the last commit."""
    measured = facts.measured if limit_of(facts) == "unmeasured" else _recent(facts)
    shares = (measured or {}).get("functions", {})
    return dict(sorted(shares.items(), key=lambda each: (-each[1], each[0])))


def slow_function(facts: Facts) -> Reason | None:
    """Return the Python function that takes most of the time of a query that does not keep up; None if none does."""
    functions = functions_of(facts)
    busy = sum(float((facts.measured or {}).get(part, 0.0)) for part in PARTS)
    name = next(iter(functions), None)
    if name is None or functions[name] * 2 <= busy or limit_of(facts) not in (*PARTS, "unmeasured"):
        return None
    return Reason(
        SLOW_FUNCTION,
        f"the query does not keep up, and waits for the Python function {name} for {functions[name]:.0%} of its time",
        "make the function faster: it is called once for all rows of a batch, so work on whole columns instead of row by row. A shorter "
        "TIMEOUT bounds the time of one call",
    )


def _recent(facts: Facts) -> Mapping[str, Any]:
    is_recent = facts.age_s is not None and facts.age_s < WINDOW_S
    return facts.measured if is_recent and facts.measured is not None else {}


def limit_of(facts: Facts) -> Limit:
    if facts.state != "running":
        return "paused" if facts.state == "paused" else "not_running"
    shares = shares_of(facts)
    has_time = sum(shares.values()) <= 1 - KEEPS_UP
    if facts.is_waiting or (has_time and facts.is_merging and facts.unread > 0):
        return "upstream"
    if not _recent(facts) and (facts.age_s is None or facts.unread > 0):
        return "unmeasured"
    return "input" if has_time else max(PARTS, key=lambda part: shares[part])

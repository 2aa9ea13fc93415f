"""What limits the rate at which a query works, from the measured shares of its time and what waits. Pure.

The rule, first match counts:

1. It does not run: ``paused`` or ``not_running``.
2. It waits for a producer that does not work, or leaves records unread though it has time, since a query that writes another of its inputs
   has not come so far in event time (P9): ``upstream``.
3. Nothing was measured in the last ten seconds though it has committed nothing yet, or leaves records unread: ``unmeasured``. It is at
   work at its first batch, or at a long one.
4. It waits for input for a fifth of the last ten seconds or more: ``input``. It keeps up.
5. Else the greatest of the shares: ``reading``, ``tasks``, ``commit`` or ``other_queries``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from app.catalog.reasons import Reason

Limit = Literal["input", "reading", "tasks", "commit", "other_queries", "upstream", "unmeasured", "paused", "not_running"]

PARTS: Final[tuple[Limit, ...]] = ("reading", "tasks", "commit", "other_queries")

SLOW_FUNCTION: Final = "slow_function"

KEEPS_UP: Final = 0.2
"""Share of the time that a query waits for input, from which on it keeps up."""

WINDOW_S: Final = 10.0
"""What was measured longer ago says nothing of now."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a query.

    Attributes:
        state: its state.
        is_waiting: it waits for a producer (``waits_for_producer``).
        is_merging: it reads a derived feed beside another one.
        unread: records of its log feeds that it has not read.
        measured: shares of the time before its last commit (``engine.runtime.limits.time_breakdown``); None: there are none.
        age_s: how long ago that was; None: it has committed nothing.
    """

    state: str
    is_waiting: bool
    is_merging: bool
    unread: int
    measured: Mapping[str, Any] | None
    age_s: float | None


def shares_of(facts: Facts) -> dict[Limit, float]:
    """Return the share of each part in the last seconds."""
    measured = _recent(facts)
    return {part: float(measured.get(part, 0.0)) for part in PARTS}


def busiest_task_of(facts: Facts) -> float | None:
    """Return the share of the busiest task in the work of all; None where that is not known."""
    return _recent(facts).get("busiest_task")


def functions_of(facts: Facts) -> dict[str, float]:
    """Return the share of the time that each Python function took, the largest first; at a long batch, before the last commit."""
    measured = facts.measured if limit_of(facts) == "unmeasured" else _recent(facts)
    found = (measured or {}).get("functions", {})
    return dict(sorted(found.items(), key=lambda each: (-each[1], each[0])))


def slow_function(facts: Facts) -> Reason | None:
    """Say which Python function takes most of the time of a query that does not keep up; None where none does."""
    functions = functions_of(facts)
    busy = sum(float((facts.measured or {}).get(part, 0.0)) for part in PARTS)
    name = next(iter(functions), None)
    if name is None or functions[name] * 2 <= busy or limit_of(facts) not in (*PARTS, "unmeasured"):
        return None
    return Reason(
        SLOW_FUNCTION,
        f"the query does not keep up, and waits for the Python function {name} for {functions[name]:.0%} of its time",
        "make the function faster: it is called once for all rows of a batch, so work on whole columns instead of row by row. A shorter "
        "TIMEOUT bounds what one call may take",
    )


def _recent(facts: Facts) -> Mapping[str, Any]:
    is_recent = facts.age_s is not None and facts.age_s < WINDOW_S
    return facts.measured if is_recent and facts.measured is not None else {}


def limit_of(facts: Facts) -> Limit:
    """Say what limits a query."""
    if facts.state != "running":
        return "paused" if facts.state == "paused" else "not_running"
    shares = shares_of(facts)
    has_time = sum(shares.values()) <= 1 - KEEPS_UP
    if facts.is_waiting or (has_time and facts.is_merging and facts.unread > 0):
        return "upstream"
    if not _recent(facts) and (facts.age_s is None or facts.unread > 0):
        return "unmeasured"
    return "input" if has_time else max(PARTS, key=lambda part: shares[part])

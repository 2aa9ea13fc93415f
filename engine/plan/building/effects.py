"""Options that would be accepted and then do nothing: each is refused where it stands, with what to do instead."""

from __future__ import annotations

from collections.abc import Sequence

from engine.definition.problems import Problems
from engine.definition.queries import LateRecordsKept, QueryDefinition
from engine.plan.building.scope import Side

_CLOCKED_SUPPRESSION = "until_time_limit"
"""The one suppression that waits for event time without a window."""


def check_effects(definition: QueryDefinition, problems: Problems) -> None:
    """Check options that the rest of the definition leaves without anything to act on.

    Codes: ``idle_without_clock``, ``retention_without_table``, ``buffer_without_bound``.
    """
    if definition.idle is not None and not _has_clock(definition):
        problems.add(
            "/idle", "idle_without_clock",
            "`idle` lets event time go on in silence, and nothing in this query waits for event time: that would be a join's `grace` "
            "or `within`, a window, or suppress mode until_time_limit. Leave `idle` out",
        )  # fmt: skip
    window = definition.window
    if window is not None and window.retention is not None and definition.into.table is None:
        problems.add(
            "/window/retention", "retention_without_table",
            "`retention` says how long a table shows closed windows; a stream keeps every record as long as its feed does. "
            "Leave `retention` out, or make the result a table",
        )  # fmt: skip
    buffer = definition.suppress.buffer
    if buffer is not None and definition.suppress.limit is not None and buffer.max_rows is None and buffer.max_bytes is None:
        problems.add(
            "/suppress/buffer",
            "buffer_without_bound",
            "a buffer without a bound is never full; give `max_rows` or `max_bytes`, or leave it out",
        )


def check_late_records(definition: QueryDefinition, sides: Sequence[Side], problems: Problems) -> None:
    """Check that there can be late rows to keep. Code: ``late_records_without_late``."""
    if definition.late_records == LateRecordsKept():
        return
    has_late = definition.window is not None or any(
        join.within is not None or join.late != "join" or join.expired in ("drop", "divert") for join in definition.joins
    )
    if not has_late and not any(side.entry.relation.history_retention_ms is not None for side in sides):
        problems.add(
            "/late_records", "late_records_without_late",
            "no row of this query can be late: that takes a window, a join of two streams, a late policy, or a versioned table. "
            "Leave `late_records` out",
        )  # fmt: skip


def _has_clock(definition: QueryDefinition) -> bool:
    is_waiting = any(join.grace is not None or join.within is not None for join in definition.joins)
    return is_waiting or definition.window is not None or definition.suppress.mode == _CLOCKED_SUPPRESSION

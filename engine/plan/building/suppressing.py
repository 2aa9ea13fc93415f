"""Checks and plans `suppress`: which mode fits which result, what each mode takes."""

from __future__ import annotations

from engine.definition.problems import Problems
from engine.definition.queries import QueryDefinition, Suppress
from engine.plan.operators.suppression import SuppressBuffer, TimeLimitSuppression, WallClockSuppression, WindowClosing

SUPPRESS_OPERATOR = "suppress"

_LIMITED = ("until_time_limit", "until_wall_clock_time_limit")
_WINDOWED = {
    "until_window_closes": ("final_without_window", "only windows become final; give a window, or another mode"),
    "window_end_then_corrections": ("corrections_without_window", "only windows end; give a window, or another mode"),
}


def check_suppress(definition: QueryDefinition, problems: Problems) -> None:
    """Check the mode and what was given with it, as far as the relations do not matter."""
    suppress = definition.suppress
    mode = suppress.mode
    if mode in _WINDOWED and definition.window is None:
        problems.add("/suppress/mode", *_WINDOWED[mode])
    if mode in _LIMITED and suppress.limit is None:
        problems.add("/suppress/limit", "field_missing", f"`{mode}` needs a `limit`: how long changes are held back, such as 5m")
    if mode not in _LIMITED and suppress.limit is not None:
        problems.add("/suppress/limit", "limit_without_mode", f"`{mode}` takes no limit; leave it out")
    if suppress.event_driven and mode != "until_wall_clock_time_limit":
        problems.add(
            "/suppress/event_driven", "unsupported_option", "`event_driven` belongs to until_wall_clock_time_limit; leave it out"
        )
    if mode not in _LIMITED:
        _check_no_buffer(suppress, problems)


def _check_no_buffer(suppress: Suppress, problems: Problems) -> None:
    buffer, pointer = suppress.buffer, "/suppress/buffer"
    if buffer is None:
        return
    if suppress.mode == "none":
        problems.add(pointer, "buffer_without_mode", "nothing is held back in mode `none`; leave `buffer` out, or choose a mode")
    elif buffer.when_full == "emit_early":
        problems.add(
            f"{pointer}/when_full", "emit_early_not_final",
            f"`{suppress.mode}` promises when a window's results come, which letting them go early would break; leave `buffer` out, "
            "or use until_time_limit",
        )  # fmt: skip
    elif buffer.max_rows is not None or buffer.max_bytes is not None:
        bound = "max_rows" if buffer.max_rows is not None else "max_bytes"
        problems.add(
            f"{pointer}/{bound}", "buffer_not_bounded",
            f"in mode `{suppress.mode}` results are read from the windows' own state on disk when they are due: there is no second "
            "buffer that a bound could limit. Leave it out; fewer windows are open with a shorter `grace`",
        )  # fmt: skip


def check_suppressed(definition: QueryDefinition, *, is_table: bool, is_versioned: bool, problems: Problems) -> None:
    """Check that a limit has a table's changes to hold back.

    Args:
        definition: the query.
        is_table: what comes before the select is a table, or an aggregation's result.
        is_versioned: it is a versioned table's own history of changes.
        problems: gathers faults.
    """
    if definition.suppress.mode not in _LIMITED:
        return
    if not is_table:
        problems.add(
            "/suppress/mode", "suppress_needs_table",
            "only changes of a table's rows can stand for each other; records of a stream all count. Aggregate the stream, or "
            "leave `suppress` out",
        )  # fmt: skip
    elif is_versioned:
        problems.add(
            "/suppress/mode", "suppress_on_versioned_table",
            "a versioned table's changes are its history, and holding some back would lose versions (KIP-914); leave `suppress` "
            "out, or read the table through an aggregation",
        )  # fmt: skip


def plan_suppress(
    definition: QueryDefinition, key: tuple[str, ...], closing_delay_ms: int | None
) -> TimeLimitSuppression | WallClockSuppression | None:
    """Return the operator that holds changes of rows with this key back; None where the mode needs none of its own.

    Args:
        definition: the query.
        key: of the rows; ends with the window's bounds where there are windows.
        closing_delay_ms: of the windows, None where there are none.
    """
    suppress = definition.suppress
    if suppress.mode not in _LIMITED or suppress.limit is None:
        return None
    bounds = suppress.buffer
    is_bounded = bounds is not None and (bounds.max_rows is not None or bounds.max_bytes is not None)
    buffer = SuppressBuffer(bounds.max_rows, bounds.max_bytes, bounds.when_full) if bounds is not None and is_bounded else None
    closing = None if closing_delay_ms is None else WindowClosing(key[-1], closing_delay_ms)
    if suppress.mode == "until_time_limit":
        return TimeLimitSuppression(SUPPRESS_OPERATOR, key, suppress.limit, buffer, closing)
    return WallClockSuppression(SUPPRESS_OPERATOR, key, suppress.limit, buffer, suppress.event_driven, closing)


def closes_after(definition: QueryDefinition, closing_delay_ms: int | None) -> int | None:
    """Return how long after its end a window's row stays as it is shown; None without windows, or where stream time does not say it.

    What a limit in event time holds back is released by as much stream time later; what one in wall clock holds back, at any.
    """
    suppress = definition.suppress
    if closing_delay_ms is None or suppress.mode == "until_wall_clock_time_limit":
        return None
    return closing_delay_ms + (suppress.limit if suppress.mode == "until_time_limit" and suppress.limit is not None else 0)

"""WINDOW and EMIT: the definition's window, suppression and idleness."""

from __future__ import annotations

from typing import Any, Final

from engine.definition.queries import DAY_MS
from engine.sql.statement_tree import BufferClause, EmitClause, WindowClause
from engine.statements.context.faults import StatementRefused
from engine.statements.context.properties import milliseconds
from engine.statements.context.session import KeyWindow, Settings

_LENGTHS: Final = {"tumbling": "size", "hopping": "size", "session": "gap", "sliding": "difference"}


def window_body(
    window: WindowClause, emit: EmitClause | None, settings: Settings, *, is_free: bool = False
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the definition's window, and what was left open and how it was understood; ``is_free``: ksqlDB's rules do not bind it."""
    length_ms = milliseconds(window.length)
    body: dict[str, Any] = {"type": window.type, _LENGTHS[window.type]: f"{length_ms}ms"}
    if length_ms == 0 and window.type != "sliding" and not is_free:
        raise StatementRefused("duration_malformed", "A window must be longer than 0", window.length)
    if window.advance is not None:
        body["advance"] = f"{milliseconds(window.advance)}ms"
    notes: tuple[str, ...] = ()
    if window.grace is not None:
        body["grace"] = f"{milliseconds(window.grace)}ms"
    elif not is_free:
        is_final = emit is not None and emit.mode == "final"
        theirs = 0 if is_final else max(DAY_MS - length_ms, 0)
        body["grace"] = f"{theirs if settings.default_grace == 'ksqldb' else 0}ms"
        if settings.default_grace == "klip10" and theirs:
            note = (
                "Without GRACE PERIOD a window takes no record that comes after its end in stream time (KLIP-10); in ksqlDB it is "
                f"{theirs // 1000} seconds: write GRACE PERIOD {theirs // 1000} SECONDS for that"
            )
            notes = (note,)
    if window.retention is not None:
        if not is_free:
            _check_retention(window, length_ms)
        body["retention"] = f"{milliseconds(window.retention)}ms"
    return body, notes


def _check_retention(window: WindowClause, length_ms: int) -> None:
    if window.retention is None or window.grace is None:
        return
    retention_ms, least_ms = milliseconds(window.retention), length_ms + milliseconds(window.grace)
    if retention_ms < least_ms:
        raise StatementRefused(
            "retention_too_short",
            f"The retention period {retention_ms} ms is shorter than the window and its grace, {least_ms} ms: open windows could not be read",
            window.retention,
        )


def key_window(window: WindowClause) -> KeyWindow:
    return KeyWindow(window.type, None if window.type == "session" else milliseconds(window.length))


def suppress_body(emit: EmitClause | None) -> dict[str, Any]:
    """Return what of the definition EMIT says: ``suppress``, ``idle``, ``clock`` and, for ``into``, ``materialize_open``."""
    if emit is None:
        return {}
    body: dict[str, Any] = {}
    if emit.mode == "all":
        raise StatementRefused("emit_unfit", "EMIT ALL belongs to a SELECT that is read at once, not to one that is kept", emit)
    if emit.mode == "final":
        body["suppress"] = {"mode": "until_window_closes"}
    elif emit.mode == "window_end":
        body["suppress"] = {"mode": "window_end_then_corrections"}
    elif emit.every is not None:
        body["suppress"] = {
            "mode": "until_wall_clock_time_limit",
            "limit": f"{milliseconds(emit.every)}ms",
            "event_driven": emit.is_event_driven,
            **_buffer(emit.buffer),
        }
    elif emit.wait is not None:
        body["suppress"] = {"mode": "until_time_limit", "limit": f"{milliseconds(emit.wait)}ms", **_buffer(emit.buffer)}
    elif emit.buffer is not None:
        raise StatementRefused(
            "emit_unfit", "BUFFER bounds what EVERY or WAIT hold back; EMIT CHANGES alone holds nothing", emit.buffer
        )
    if emit.idle_after is not None:
        body["idle"] = {"after": f"{milliseconds(emit.idle_after)}ms"}
    if emit.clock is not None:
        body["clock"] = emit.clock
    return body


def _buffer(buffer: BufferClause | None) -> dict[str, Any]:
    if buffer is None:
        return {}
    given = {"max_rows": buffer.max_rows, "max_bytes": buffer.max_bytes}
    body: dict[str, Any] = {name: int(value) for name, value in given.items() if value is not None}
    if buffer.when_full is not None:
        body["when_full"] = buffer.when_full
    return {"buffer": body}

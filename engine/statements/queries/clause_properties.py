"""Our clauses as properties of WITH (...), for clients that parse statements on their side and know ksqlDB's clauses alone.

``'JOIN.W.GRACE'='1 HOUR'`` says of the join with the input that the statement calls W what ``GRACE PERIOD 1 HOUR`` says;
``EMIT_EVERY='30 SECONDS'`` is ``EMIT CHANGES EVERY 30 SECONDS``. What a clause and a property both say is refused.
``INTO_CONNECTOR`` has no clause: it is ``into.connector`` as JSON.
"""

from __future__ import annotations

import json
from typing import Any, Final

from engine.sql.statement_tree import CreateAs, InsertQuery, Statement
from engine.statements.context.faults import StatementRefused
from engine.statements.context.properties import Properties
from engine.statements.queries.selecting import Selected

INTO_CONNECTOR: Final = "INTO_CONNECTOR"

_WORDS: Final = {
    "LATE": ("late", ("JOIN", "DROP", "DIVERT")),
    "EXPIRED": ("expired", ("NULL", "DROP", "DIVERT")),
    "HISTORY": ("history", ("COMPLETE", "LATEST")),
}
"""Property of a join → field of the definition and what it may be."""


def take_properties(selected: Selected, properties: Properties) -> None:
    """Add to a query what properties say of its joins, and of when its results are shown; what a clause says, too, is reported."""
    for source, join in zip(selected.sources.listed[1:], selected.body["joins"], strict=True):
        _take_join(join, f"JOIN.{source.alias.upper()}.", properties)
    clock = properties.one_of("CLOCK", ("FASTEST", "SLOWEST"))
    shown = {**_shown_when(properties), "clock": clock and clock.lower()}
    found = {name: value for name, value in shown.items() if value is not None}
    for name, value in found.items():
        _put(selected.body, name, value, properties, "EMIT")


def says_target(statement: Statement) -> bool:
    """Whether a statement says where results are delivered to: then that is looked at before it is carried out."""
    return isinstance(statement, CreateAs | InsertQuery) and INTO_CONNECTOR in Properties(statement.properties).names


def connector_of(properties: Properties) -> dict[str, Any] | None:
    """Return where the results are delivered to; None where no property says it."""
    text = properties.text(INTO_CONNECTOR)
    if text is None:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        example = """INTO_CONNECTOR='{"type": "files", "path": "orders"}'"""
        detail = f"INTO_CONNECTOR is an object of JSON, as in {example}"
        properties.malformed(INTO_CONNECTOR, detail)
        return None
    return found


def _take_join(join: dict[str, Any], prefix: str, properties: Properties) -> None:
    grace_ms = properties.duration(prefix + "GRACE")
    unmatched = properties.one_of(prefix + "UNMATCHED", ("EAGER", "WHEN_CLOSED"))
    if "within" in join:
        if grace_ms is not None:
            join["within"] |= {"grace": f"{grace_ms}ms", "unmatched": "when_closed"}
        if unmatched is not None:
            join["within"]["unmatched"] = unmatched.lower()
        return
    if grace_ms is not None:
        _put(join, "grace", f"{grace_ms}ms", properties, prefix + "GRACE")
    for name, (field, words) in _WORDS.items():
        word = properties.one_of(prefix + name, words)
        if word is not None:
            _put(join, field, word.lower(), properties, prefix + name)
    if properties.flag(prefix + "UNVERSIONED"):
        join["unversioned_ok"] = True
    hold = _hold(prefix, properties)
    if hold is not None:
        _put(join, "hold", hold, properties, prefix + "HOLD")


def _hold(prefix: str, properties: Properties) -> dict[str, Any] | None:
    until = properties.one_of(prefix + "HOLD", ("TABLE_TIME", "CAUGHT_UP"))
    most_ms, slack_ms = properties.duration(prefix + "HOLD_AT_MOST"), properties.duration(prefix + "HOLD_SLACK")
    rows = properties.whole(prefix + "HOLD_MAX_ROWS")
    if until is None:
        return None
    if most_ms is None:
        if not properties.is_unreadable(prefix + "HOLD_AT_MOST"):
            detail = f"{prefix}HOLD needs '{prefix}HOLD_AT_MOST'"
            properties.faults.add(StatementRefused("property_missing", detail, properties.node(prefix + "HOLD")))
        return None
    given = {"slack": None if slack_ms is None else f"{slack_ms}ms", "max_rows": rows}
    return {
        "until": until.lower(),
        "at_most": f"{most_ms}ms",
        **{name: value for name, value in given.items() if value is not None},
    }


def _shown_when(properties: Properties) -> dict[str, Any]:
    """Return the definition's ``suppress`` and ``idle``, None where no property says it."""
    every_ms, wait_ms = properties.duration("EMIT_EVERY"), properties.duration("EMIT_WAIT")
    rows, size = properties.whole("EMIT_BUFFER_ROWS"), properties.whole("EMIT_BUFFER_BYTES")
    full = properties.one_of("EMIT_ON_FULL", ("EMIT", "STOP"))
    is_event_driven = properties.flag("EMIT_EVENT_DRIVEN")
    at, idle_ms = properties.one_of("EMIT_AT", ("WINDOW_END",)), properties.duration("IDLE_AFTER")
    idle = None if idle_ms is None else {"after": f"{idle_ms}ms"}
    if at is not None:
        return {"suppress": {"mode": "window_end_then_corrections"}, "idle": idle}
    limit_ms = wait_ms if every_ms is None else every_ms
    if limit_ms is None:
        return {"suppress": None, "idle": idle}
    words = {"EMIT": "emit_early", "STOP": "stop"}
    bounds = {"max_rows": rows, "max_bytes": size, "when_full": None if full is None else words[full]}
    buffer = {name: value for name, value in bounds.items() if value is not None}
    suppress: dict[str, Any] = {
        "mode": "until_time_limit" if every_ms is None else "until_wall_clock_time_limit",
        "limit": f"{limit_ms}ms",
    }
    if is_event_driven is not None:
        suppress["event_driven"] = is_event_driven
    return {"suppress": {**suppress, **({"buffer": buffer} if buffer else {})}, "idle": idle}


def _put(body: dict[str, Any], name: str, value: Any, properties: Properties, said: str) -> None:
    if name in body:
        detail = f"{said}: a clause says it, too; say it once"
        properties.faults.add(StatementRefused("property_clash", detail, properties.node(said)))
        return
    body[name] = value

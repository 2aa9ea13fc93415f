"""Where the event time of a source's records is: TIMESTAMP and its format."""

from __future__ import annotations

import re
from typing import Any, Final

from engine.definition.queries import DAY_MS
from engine.expressions.suggestions import hint
from engine.expressions.types.types import ColumnType, Schema
from engine.sql.statement_tree import CreateRelation
from engine.sql.tree import Node
from engine.statements.context.faults import StatementRefused, StatementUnsupported
from engine.statements.context.naming import folded
from engine.statements.context.properties import Properties
from engine.statements.context.session import Session
from engine.statements.context.type_names import shown

RFC_3339: Final = "RFC 3339"
"""EVENT_TIME_FORMAT of texts that need no format."""


def event_time(statement: CreateRelation, columns: Schema, properties: Properties) -> dict[str, Any]:
    """Return what is said of the column that holds the event time."""
    written, form = properties.text("TIMESTAMP"), properties.text("TIMESTAMP_FORMAT")
    unit = properties.one_of("EVENT_TIME_UNIT", ("S", "MS", "US", "NS"))
    own_form = properties.text("EVENT_TIME_FORMAT")
    if written is None:
        if form is not None and not properties.is_unreadable("TIMESTAMP"):
            detail = "TIMESTAMP_FORMAT needs TIMESTAMP: say which column it is the format of"
            properties.faults.add(StatementRefused("property_clash", detail, properties.node("TIMESTAMP_FORMAT")))
        return {}
    name = written.strip('`"') if written[:1] in ("`", '"') else written.upper()
    declared = [folded(each.name) for each in statement.columns]
    if declared and name not in declared:
        detail = f"TIMESTAMP names {name}, which is no column{hint(name, declared)}"
        properties.faults.add(StatementRefused("unknown_column", detail, properties.node("TIMESTAMP")))
    if name not in columns or properties.is_unreadable("EVENT_TIME_UNIT", "TIMESTAMP_FORMAT", "EVENT_TIME_FORMAT"):
        return {}
    if unit is not None:
        return {"event_time": name, "event_time_unit": unit.lower()}
    if columns[name].kind == "string" and own_form is not None:
        return {"event_time": name, "event_time_format": None if own_form == RFC_3339 else own_form}
    with properties.faults.part():
        return _formatted_time(name, columns[name], form, properties)
    return {}


def _formatted_time(name: str, kind: ColumnType, form: str | None, properties: Properties) -> dict[str, Any]:
    node = properties.node("TIMESTAMP")
    if kind.kind == "string":
        if form is None:
            raise StatementRefused(
                "property_missing",
                f"{name} is a text: say how it writes a time, as in TIMESTAMP_FORMAT='yyyy-MM-dd HH:mm:ss'",
                node,
            )
        return {"event_time": name, "event_time_format": strptime_of(form, properties.node("TIMESTAMP_FORMAT"))}
    if kind.kind not in ("bigint", "timestamp"):
        raise StatementRefused(
            "type_mismatch", f"{name} is {shown(kind)}; TIMESTAMP takes a BIGINT, a TIMESTAMP, or a STRING with TIMESTAMP_FORMAT", node,
        )  # fmt: skip
    if form is not None:
        raise StatementRefused("property_clash", f"{name} is no text: leave TIMESTAMP_FORMAT out", node)
    return {"event_time": name}


def max_future_skew(properties: Properties, session: Session) -> str | None:
    node, written = properties.node("MAX_FUTURE_SKEW"), properties.text("MAX_FUTURE_SKEW")
    if node is None:
        return None if session.settings.default_grace == "ksqldb" else f"{DAY_MS}ms"
    skew_ms = None if (written or "").upper() == "NONE" else properties.duration("MAX_FUTURE_SKEW")
    return None if skew_ms is None else f"{skew_ms}ms"


_LETTERS: Final = {
    "yyyy": "%Y", "uuuu": "%Y", "y": "%Y", "yy": "%y", "MM": "%m", "M": "%m", "MMM": "%b", "MMMM": "%B", "dd": "%d", "d": "%d", "DDD": "%j",
    "HH": "%H", "H": "%H", "hh": "%I", "h": "%I", "mm": "%M", "m": "%M", "ss": "%S", "s": "%S", "SSS": "%3f", "SSSSSS": "%6f",
    "SSSSSSSSS": "%9f", "a": "%p", "EEE": "%a", "EEEE": "%A", "X": "%#z", "XX": "%z", "XXX": "%:z", "Z": "%z", "ZZZZZ": "%:z",
}  # fmt: skip
_MEANINGLESS: Final = "bfijlortCIJPRTU"
_PART = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|(.)", re.DOTALL)


def strptime_of(pattern: str, at: Node | None) -> str:
    """Return a pattern of Java's DateTimeFormatter as strptime writes it.

    Raises:
        StatementRefused: a letter that has no meaning there.
        StatementUnsupported: one that has none here.
    """
    found: list[str] = []
    for part in _PART.finditer(pattern):
        if part[1] is not None:
            found.append(part[1].replace("''", "'").replace("%", "%%") or "'")
        elif part[2] is None:
            found.append("%%" if part[0] == "%" else part[0])
        elif part[2] == "S" and part[0] not in _LETTERS and found[-1:] == ["."]:
            found[-1] = "%.f"
        elif part[0] in _LETTERS:
            found.append(_LETTERS[part[0]])
        elif part[2] in _MEANINGLESS:
            raise StatementRefused(
                "pattern_malformed", f"{part[2]} means nothing in the pattern {pattern!r}: put texts into quotes, as in 'T'", at
            )
        else:
            raise StatementUnsupported("pattern_not_supported", f"{part[0]} of the pattern {pattern!r} is not supported", at)
    return "".join(found)

"""Warnings about appended records that are valid but unusual. Pure."""

from __future__ import annotations

from app.http.sentences import shown
from engine.plan.model import RelationSchema
from engine.plan.warnings import DefinitionWarning

EARLY_MS = 631_152_000_000
"""1990-01-01. Seconds since 1970 that are read as milliseconds are before it, and few records are as old."""


def warnings_of(relation: RelationSchema, newest_ms: int | None) -> tuple[DefinitionWarning, ...]:
    """Return the warnings for the client that appended.

    Args:
        relation: the target of the append.
        newest_ms: the greatest event time of the accepted records of one request; None if there are none.
    """
    if newest_ms is None or newest_ms >= EARLY_MS:
        return ()
    pointer, reading, cure = _event_time(relation)
    detail = f"every record of this request has an event time before 1990, the newest of {shown(newest_ms)}: {reading}"
    return (DefinitionWarning(pointer, "event_times_before_1990", detail, f"{cure}; nothing if the records are that old"),)


def _event_time(relation: RelationSchema) -> tuple[str, str, str]:
    """Return the definition's field for event times, how they are read, and the cure for a wrong reading."""
    name = relation.event_time
    if name is None:
        return "/event_time", "`$event_time_ms` counts milliseconds since 1970", "send milliseconds"
    if relation.columns[name].is_integer:
        unit = relation.event_time_unit
        cure = 'say what they count with "event_time_unit" (s, ms, us, ns); it can change while the relation has no records'
        return "/event_time_unit", f"the numbers of column {name!r} are read as {unit} since 1970", cure
    if relation.event_time_format is not None:
        return (
            "/event_time_format",
            f"the texts of column {name!r} are read by {relation.event_time_format!r}",
            "correct the format",
        )
    cure = "send RFC 3339, or milliseconds; for other numbers declare the column as bigint with an `event_time_unit`"
    return "/event_time", f"numbers in column {name!r} are read as milliseconds since 1970", cure

"""What is strange about appended records although each of them is accepted. Pure."""

from __future__ import annotations

from app.http.sentences import shown
from engine.plan.model import RelationSchema
from engine.plan.warnings import DefinitionWarning

EARLY_MS = 631_152_000_000
"""1990-01-01. Seconds of any day since 1990 that are read as milliseconds lie before it, and few records are as old."""


def warnings_of(relation: RelationSchema, newest_ms: int | None) -> tuple[DefinitionWarning, ...]:
    """Return what to tell whoever appended.

    Args:
        relation: where to.
        newest_ms: the greatest event time of the accepted records of one request; None without any.
    """
    if newest_ms is None or newest_ms >= EARLY_MS:
        return ()
    pointer, reading, cure = _event_time(relation)
    detail = f"every record of this request has an event time before 1990, the newest of {shown(newest_ms)}: {reading}"
    return (DefinitionWarning(pointer, "event_times_before_1990", detail, f"{cure}; nothing if the records are that old"),)


def _event_time(relation: RelationSchema) -> tuple[str, str, str]:
    """Return where the definition says how event times are read, how that is, and what to do where it is wrong."""
    name = relation.event_time
    if name is None:
        return "/event_time", "`$event_time_ms` counts milliseconds since 1970", "send milliseconds"
    if relation.columns[name].is_integer:
        unit = relation.event_time_unit
        cure = 'say what they count with "event_time_unit" (s, ms, us, ns); it can change while the relation holds no records'
        return "/event_time_unit", f"the numbers of column {name!r} are read as {unit} since 1970", cure
    if relation.event_time_format is not None:
        return (
            "/event_time_format",
            f"the texts of column {name!r} are read by {relation.event_time_format!r}",
            "correct the format",
        )
    cure = "send RFC 3339, or milliseconds; for other numbers declare the column as bigint with an `event_time_unit`"
    return "/event_time", f"numbers in column {name!r} are read as milliseconds since 1970", cure

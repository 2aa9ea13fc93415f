"""Warnings: definitions that are accepted and may still surprise, each with a pointer to its field and the cure. Pure.

Codes:

- ``waits_long``: the waits of the operators between the sources and the result add up to more than a day (T1c);
- ``event_time_is_arrival``: a window or a grace judges by event time, and the stream's is the time of arrival;
- ``table_dated_by_arrival``: a stream with an event-time column looks up a table without one (J2, V4);
- ``history_by_change``: the history of a running aggregation, whose versions have the time of each change (A3).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from engine.definition.queries import DAY_MS, QueryDefinition
from engine.expressions.durations import format_duration
from engine.plan.catalog import Catalog
from engine.plan.model import RelationSchema
from engine.plan.waits import Producers, total_ms, triggering, waits_behind

LONG_WAIT_MS: Final = DAY_MS
"""A wait up to a day is usual: a daily window, or a grace for what comes the next morning. The guard T7 takes a day as well."""


_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class DefinitionWarning:
    """Something that a user would not expect of a definition that is good otherwise.

    Attributes:
        pointer: JSON pointer of the field that could be changed.
        detail: what happens.
        cure: what can be done.
    """

    pointer: str
    code: str
    detail: str
    cure: str


def warnings_of(definition: QueryDefinition, catalog: Catalog, producers: Producers) -> list[DefinitionWarning]:
    """Say where a query's times, matches or history are not what a user would expect.

    Args:
        definition: normalised.
        catalog: what it was planned against.
        producers: the queries behind its inputs.
    """
    found = [
        warning
        for pointer, name in _streams_by_event_time(definition)
        for warning in _of_arrival(pointer, name, catalog, producers)
    ]
    waiting = _of_waits(definition, producers)
    return [*waiting, *found, *_of_lookups(definition, catalog, producers), *_of_history(definition)]


def _streams_by_event_time(definition: QueryDefinition) -> list[tuple[str, str]]:
    """Return the streams whose records a grace or a window judges by event time, with the pointers that name them.

    A grace of 0s decides nothing unless late records are treated otherwise (J4).
    """
    last = 0
    for place, join in enumerate(definition.joins, 1):
        if join.within is not None or join.grace or (join.grace is not None and join.late != "join"):
            last = place
    if not last and definition.window is None:
        return []
    joins = definition.joins if definition.window is not None else definition.joins[:last]
    named = [
        ("/from/stream", definition.source.stream),
        *((f"/joins/{place}/stream", join.stream) for place, join in enumerate(joins)),
    ]
    return [(pointer, name) for pointer, name in named if name is not None]


def _of_waits(definition: QueryDefinition, producers: Producers) -> Iterator[DefinitionWarning]:
    """Warn where results come long after their events, and the definition alone does not say so."""
    waits = waits_behind(definition, producers)
    own = [each for each in waits if each.query == definition.name]
    total = total_ms(waits)
    if total <= LONG_WAIT_MS or len(waits) == len(own) == 1:
        return
    parts = ", ".join(f"{format_duration(each.ms)} for {each.what} of {each.query!r}" for each in waits)
    longest = max(own, key=lambda each: each.ms, default=None)
    source = "/from/table" if definition.source.stream is None else "/from/stream"
    yield DefinitionWarning(
        source if longest is None else longest.pointer, "waits_long",
        f"results come up to {-(-total // _HOUR_MS)}h of stream time after their events, because waits add up along the chain: {parts}",
        "use shorter graces, windows and limits where results are needed earlier; nothing where they may come so late",
    )  # fmt: skip


def _of_arrival(pointer: str, name: str, catalog: Catalog, producers: Producers) -> Iterator[DefinitionWarning]:
    sources = sorted(set(_undated(name, catalog, producers)))
    if not sources:
        return
    declared = ", ".join(repr(source) for source in sources)
    origin = "it" if sources == [name] else declared
    yield DefinitionWarning(
        pointer, "event_time_is_arrival",
        f"{origin} names no `event_time` column: unless each record brings `$event_time_ms`, windows and graces over {name!r} count by the "
        f"time of arrival, and the same records read again later give other results",
        f"register {declared} with `event_time`",
    )  # fmt: skip


def _of_lookups(definition: QueryDefinition, catalog: Catalog, producers: Producers) -> Iterator[DefinitionWarning]:
    """Warn of tables whose rows are dated by arrival where the stream that looks them up has times of its own."""
    stream = definition.source.stream
    if stream is None or any(_undated(stream, catalog, producers)):
        return
    for place, join in enumerate(definition.joins):
        entry = None if join.table is None else catalog.get(join.table)
        sources = [] if entry is None or join.table is None else sorted(set(_undated(join.table, catalog, producers)))
        if entry is None or not sources:
            continue
        declared = ", ".join(repr(source) for source in sources)
        is_versioned = entry.relation.history_retention_ms is not None
        result = (
            f"a record of {stream!r} from before a row arrived does not meet that row"
            if is_versioned
            else f"records are read in the order of event time, so those of {stream!r} from before a row arrived are read before that row "
            f"where both are still unread, and do not meet it"
        )
        others = "" if is_versioned else "; nothing where rows arrive before the events that meet them"
        yield DefinitionWarning(
            f"/joins/{place}/table", "table_dated_by_arrival",
            f"{declared} names no `event_time` column: unless each record brings a time of its own (`$event_time_ms`, a topic's timestamp), the "
            f"rows of {join.table!r} are valid from their arrival, and {result}",
            f"register {declared} with an `event_time` column that says from when a row is valid, or append its rows with "
            f"`$event_time_ms`{others}",
        )  # fmt: skip


def _of_history(definition: QueryDefinition) -> Iterator[DefinitionWarning]:
    """Warn of the history of a running aggregation over a stream (A3)."""
    is_running = bool(definition.aggregate or definition.group_by) and definition.window is None
    if definition.into.versioned is None or not is_running or definition.source.stream is None:
        return
    yield DefinitionWarning(
        "/into/versioned", "history_by_change",
        "each version of a row has the greatest event time of the records counted so far: a record that comes out of the order of event "
        "time changes the row from that time on, not from its own. A read as of a time shows what was counted by then; it is not complete "
        "by event time",
        "count in windows for results that are complete by event time; nothing where the records come in the order of event time, or "
        "where the history of the changes is meant",
    )  # fmt: skip


def _undated(name: str, catalog: Catalog, producers: Producers) -> Iterator[str]:
    """Yield the sources without an event time from whose records a relation's times come."""
    entry, definition = catalog.get(name), producers(name)
    if definition is not None:
        if definition.into.event_time is not None:
            return
        for read in triggering(definition):
            yield from _undated(read, catalog, producers)
    elif entry is not None and entry.produced_by is None and _is_dated_by_arrival(entry.relation):
        yield name


def _is_dated_by_arrival(relation: RelationSchema) -> bool:
    """Whether records have no time of their own; changes of a database have that of their commit."""
    is_of_database = relation.conflict == "latest_position" or relation.change_rules is not None
    return relation.event_time is None and not is_of_database

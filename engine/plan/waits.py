"""How long a query's results wait behind the event times of its sources (L of T1c), operator by operator along the chain. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.definition.queries import Join, QueryDefinition, Suppress, Window
from engine.plan.building.windows import length_of

Producers = Callable[[str], QueryDefinition | None]
"""Gives the normalised definition of the query that writes a relation; None for a source, and where it is not known."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """An operator that waits.

    Attributes:
        what: the part of the definition, as a reader of it calls it.
        pointer: JSON pointer of the field that says how long.
        ms: by event time, or by wall clock (T11).
        query: the query that it belongs to.
    """

    what: str
    pointer: str
    ms: int
    query: str = ""


Waits = tuple[Waiting, ...]


def waits_behind(definition: QueryDefinition, producers: Producers) -> Waits:
    """Return the waits that a query's results have behind them, those nearest to the sources first.

    Of inputs that make results together those that have waited longest count (T1d); a table that a stream looks up does not (J1).
    Waits before an ``into.event_time`` do not count: the result has a time of its own.
    """
    is_stream = definition.source.stream is not None
    waited = _waits_of_relation(definition.source.relation, producers)
    for place, join in enumerate(definition.joins):
        if join.stream is not None or not is_stream:
            waited = max(waited, _waits_of_relation(join.relation, producers), key=total_ms)
        waited += _named(definition, _waits_of_join(join, f"/joins/{place}"))
    if definition.window is not None:
        waited += _named(definition, _waits_of_window(definition.window, definition.suppress))
    return waited + _named(definition, _waits_of_limit(definition.suppress))


def total_ms(waits: Waits) -> int:
    """Return the sum of waits."""
    return sum(each.ms for each in waits)


def triggering(definition: QueryDefinition) -> list[str]:
    """Return the inputs whose records trigger results: a table that a stream looks up does not (J1)."""
    is_stream = definition.source.stream is not None
    return [definition.source.relation, *(join.relation for join in definition.joins if join.stream is not None or not is_stream)]


def _waits_of_relation(name: str, producers: Producers) -> Waits:
    definition = producers(name)
    return () if definition is None or definition.into.event_time is not None else waits_behind(definition, producers)


def _named(definition: QueryDefinition, waits: Waits) -> Waits:
    return tuple(replace(each, query=definition.name) for each in waits if each.ms)


def _waits_of_join(join: Join, pointer: str) -> Waits:
    name = join.alias or join.relation
    if join.within is not None:
        return _waits_for_match(join, name, pointer)
    hold = () if join.hold is None else (Waiting(f"the hold of the join {name!r}", f"{pointer}/hold/at_most", join.hold.at_most),)
    return (Waiting(f"the grace of the join {name!r}", f"{pointer}/grace", join.grace or 0), *hold)


def _waits_for_match(join: Join, name: str, pointer: str) -> Waits:
    """A record without a match waits until no match can come; a match waits for nothing."""
    within = join.within
    if within is None or join.type == "inner" or within.unmatched == "eager":
        return ()
    reach_ms = {"left": within.after, "right": within.before}.get(join.type, max(within.after, within.before))
    return (Waiting(f"the {join.type} join {name!r}", f"{pointer}/within/grace", reach_ms + within.grace),)


def _waits_of_window(window: Window, suppress: Suppress) -> Waits:
    """The rows of a session have the time of its end, and a later one can merge with it (T1c)."""
    is_late = suppress.mode in ("until_window_closes", "window_end_then_corrections")
    if window.type == "session" and not is_late:
        return (Waiting("the sessions", "/window/gap", length_of(window) or 0),)
    length_ms = length_of(window) or 0
    return (Waiting("the final windows", "/window/grace", length_ms + window.grace),) if is_late else ()


def _waits_of_limit(suppress: Suppress) -> Waits:
    """A change waits until the key's first one is due (S1, S2)."""
    return (Waiting("the suppression", "/suppress/limit", suppress.limit or 0),)

"""A record-by-record model of session windows: dicts and loops, to hold the vectorised operator against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.plan.operators.aggregation import AggregateColumn
from engine.plan.operators.windows import SessionAggregation
from tests.property.places_model import Order, Place, changed, follow, in_order, places_alone
from tests.property.window_model import AGGREGATES, Row, aggregate

UNORDERED = tuple(column for column in AGGREGATES if column.function != "concat")
"""Without ``concat`` a final result does not depend on the order of records, so that the fast path may serve it."""


@dataclass
class _Session:
    key: str
    first: int
    last: int
    arrived: int
    rows: list[Row]
    places: list[int]
    is_shown: bool


def spec(
    gap: int, grace: int, emit: str, having: str | None = None, aggregates: tuple[AggregateColumn, ...] = AGGREGATES
) -> SessionAggregation:
    return SessionAggregation("w", (("key", "s.key"),), gap, grace, aggregates, emit, having)  # type: ignore[arg-type]


class Model:
    """Handles row after row.

    Args:
        gap: between records of a session at most.
        grace: g.
        emit: changes or final.
        places: of the rows.
        having_rows: the least count that matches, with changes the greatest.
    """

    def __init__(self, gap: int, grace: int, emit: str, places: Sequence[Place], having_rows: int | None = None) -> None:
        self.gap, self.delay, self.emit = gap, gap + grace, emit
        self.places, self.having_rows = places, having_rows
        self.sessions: list[_Session] = []
        self.outputs: list[tuple[Order, dict[str, Any]]] = []
        self.late: list[int] = []

    def take(self, number: int, row: Row, before: int) -> None:
        assert row.key is not None
        gap = self.gap
        near = [
            each for each in self.sessions if each.key == row.key and each.last >= row.ts - gap and each.first <= row.ts + gap
        ]
        near.sort(key=lambda each: (each.last, each.first))
        last = max([row.ts, *(each.last for each in near)])
        if last < before - self.delay:
            self.late.append(number)
            return
        merged = _Session(row.key, row.ts, last, number, [], [], is_shown=True)
        for each in near:
            self.sessions.remove(each)
            merged.first, merged.arrived = min(merged.first, each.first), min(merged.arrived, each.arrived)
            merged.rows += each.rows
            merged.places += each.places
        merged.rows.append(row)
        merged.places.append(number)
        merged.is_shown = self.emit == "final" or self.having_rows is None or len(merged.rows) <= self.having_rows
        self.sessions.append(merged)
        if self.emit == "changes":
            for ordinal, (each, op) in enumerate(_changes(near, merged)):
                place = self.places[number]
                self.outputs.append((changed(place, ordinal), _output(place.position, 1000 + number, each, op)))

    def rise(self, position: int, time: int) -> None:
        for session in [each for each in self.sessions if each.last < time - self.delay]:
            self.sessions.remove(session)
            if self.emit == "final" and (self.having_rows is None or len(session.rows) >= self.having_rows):
                order = Order(position, (), (session.last, session.first, session.arrived))
                self.outputs.append((order, _output(position, -1, session, 0)))


def run(
    rows: Sequence[Row],
    gap: int,
    grace: int,
    emit: str,
    having_rows: int | None = None,
    places: Sequence[Place] | None = None,
    silences: Mapping[int, int] | None = None,
) -> tuple[list[dict[str, Any]], list[int]]:
    """Handle row after row; returns what is emitted, and the numbers of late rows."""
    places = places or places_alone(len(rows))
    model = Model(gap, grace, emit, places, having_rows)
    follow(rows, places, model.take, model.rise, silences)
    return in_order(model.outputs), model.late


def _changes(parts: list[_Session], merged: _Session) -> list[tuple[_Session, int]]:
    is_instant = merged.first == merged.last
    deletes = [(each, 1) for each in parts if each.is_shown and not (is_instant and merged.is_shown)]
    return [*deletes, (merged, 0)] if merged.is_shown else deletes


def _output(position: int, offset: int, session: _Session, op: int) -> dict[str, Any]:
    values = aggregate(session.rows, session.places)
    service = {"_pos": position, "_ts": session.last, "_op": op, "_offset": offset}
    bounds = {"key": session.key, "window_start": session.first, "window_end": session.last}
    return {**service, **bounds, **(dict.fromkeys(values) if op else values)}

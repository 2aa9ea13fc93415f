"""A record-by-record model of session windows: dicts and loops, to hold the vectorised operator against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.plan.operators.aggregation import AggregateColumn
from engine.plan.operators.windows import SessionAggregation
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


def advance_position(place: int) -> int:
    """Position of an advance of time behind the record ``place - 1``."""
    return 10 * place - 1


def run(
    rows: Sequence[Row],
    gap: int,
    grace: int,
    emit: str,
    having_rows: int | None = None,
    advances: Mapping[int, int] | None = None,
) -> tuple[list[dict[str, Any]], list[int]]:
    """Handle record after record.

    Args:
        having_rows: the least count that matches, with ``changes`` the greatest.
        advances: place → by how much time advances before that record without one (T10).

    Returns:
        The emissions, and the places of the late records.
    """
    stream_time = None
    sessions: list[_Session] = []
    outputs: list[dict[str, Any]] = []
    late: list[int] = []

    def close(position: int, offset: int) -> None:
        horizon = (stream_time or 0) - gap - grace
        due = [session for session in sessions if session.last < horizon]
        for session in sorted(due, key=lambda each: (each.last, each.first, each.arrived)):
            sessions.remove(session)
            if emit == "final" and (having_rows is None or len(session.rows) >= having_rows):
                outputs.append(_output(position, offset, session, 0))

    for place, row in enumerate([*rows, None]):
        if place in (advances or {}) and stream_time is not None:
            stream_time += (advances or {})[place]
            close(advance_position(place), -1)
        if row is None or row.key is None or row.op:
            continue
        stream_time = row.ts if stream_time is None else max(stream_time, row.ts)
        close(10 * place, 1000 + place)
        near = [each for each in sessions if each.key == row.key and each.last >= row.ts - gap and each.first <= row.ts + gap]
        near.sort(key=lambda each: (each.last, each.first))
        last = max([row.ts, *(each.last for each in near)])
        if last < stream_time - gap - grace:
            late.append(place)
            continue
        merged = _Session(row.key, row.ts, last, place, [], [], is_shown=True)
        for each in near:
            sessions.remove(each)
            merged.first, merged.arrived = min(merged.first, each.first), min(merged.arrived, each.arrived)
            merged.rows += each.rows
            merged.places += each.places
        merged.rows.append(row)
        merged.places.append(place)
        merged.is_shown = emit == "final" or having_rows is None or len(merged.rows) <= having_rows
        sessions.append(merged)
        if emit == "changes":
            outputs += _change(place, near, merged)
    return outputs, late


def _change(place: int, parts: list[_Session], merged: _Session) -> list[dict[str, Any]]:
    is_instant = merged.first == merged.last
    deletes = [each for each in parts if each.is_shown and not (is_instant and merged.is_shown)]
    shown = [_output(10 * place, 1000 + place, merged, 0)] if merged.is_shown else []
    return [*(_output(10 * place, 1000 + place, each, 1) for each in deletes), *shown]


def _output(position: int, offset: int, session: _Session, op: int) -> dict[str, Any]:
    values = aggregate(session.rows, session.places)
    service = {"_pos": position, "_ts": session.last, "_op": op, "_offset": offset}
    bounds = {"key": session.key, "window_start": session.first, "window_end": session.last}
    return {**service, **bounds, **(dict.fromkeys(values) if op else values)}

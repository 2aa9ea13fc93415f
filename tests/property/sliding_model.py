"""A record-by-record model of sliding windows, written from W4 and STRICT 3, 4, 15–17, 19: dicts and loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.plan.operators.aggregation import AggregateColumn
from engine.plan.operators.windows import SlidingAggregation
from tests.property.places_model import Order, Place, changed, follow, in_order, places_alone
from tests.property.window_model import AGGREGATES, Row, aggregate


@dataclass
class _Window:
    first: int
    rows: list[Row] = field(default_factory=list)


@dataclass
class _Group:
    """Accepted records with their places, every window ever declared, those that were open then."""

    accepted: list[tuple[int, Row]] = field(default_factory=list)
    declared: set[int] = field(default_factory=set)
    windows: dict[int, _Window] = field(default_factory=dict)


def spec(
    difference: int,
    grace: int,
    emit: str,
    having: str | None = None,
    aggregates: tuple[AggregateColumn, ...] = AGGREGATES,
) -> SlidingAggregation:
    return SlidingAggregation("w", (("key", "s.key"),), difference, grace, aggregates, emit, having)  # type: ignore[arg-type]


class Model:
    """Handles row after row.

    Args:
        difference: d.
        grace: g; may be changed between rows.
        emit: changes or final.
        places: of the rows.
        having: least (final) or greatest (changes) number of rows that is shown.
    """

    def __init__(self, difference: int, grace: int, emit: str, places: Sequence[Place], having: int | None = None) -> None:
        self._difference = difference
        self.grace = grace
        self._emit = emit
        self._places = places
        self._having = having
        self._boundary = 0
        self._groups: dict[str, _Group] = {}
        self._outputs: list[tuple[Order, dict[str, Any]]] = []
        self.refused: list[int] = []

    @property
    def outputs(self) -> list[dict[str, Any]]:
        return in_order(self._outputs)

    def take(self, number: int, row: Row, before: int) -> None:
        """Handle one row."""
        assert row.key is not None
        self._boundary = max(self._boundary, before - self.grace)
        if row.ts + self._difference < self._boundary:
            self.refused.append(number)
        else:
            self._accept(number, row.key, row)

    def rise(self, position: int, time: int) -> None:
        """Close what time closes."""
        self._boundary = max(self._boundary, time - self.grace)
        for key, group in self._groups.items():
            for start in [start for start in group.windows if not self._is_open(start)]:
                window = group.windows[start]
                if self._emit == "final" and (self._having is None or len(window.rows) >= self._having):
                    self._output(Order(position, (), (start, window.first)), -1, key, start, 0)
                del group.windows[start]

    def _accept(self, place: int, key: str, row: Row) -> None:
        group = self._groups.setdefault(key, _Group())
        existing = [start for start in group.windows if start <= row.ts <= start + self._difference and self._is_open(start)]
        for start in existing:
            group.windows[start].rows.append(row)
        group.accepted.append((place, row))
        new = self._declared(group) - group.declared
        group.declared |= new
        new = {start for start in new if self._is_open(start)}
        for start in new:
            inside = [(at, each) for at, each in group.accepted if start <= each.ts <= start + self._difference]
            group.windows[start] = _Window(inside[0][0], [each for _, each in inside])
        if self._emit == "changes":
            ordinal = 0
            for start in self._order(row.ts, existing, new):
                op = self._change(key, start, is_new=start in new)
                if op is not None:
                    self._output(changed(self._places[place], ordinal), 1000 + place, key, start, op)
                    ordinal += 1

    def _declared(self, group: _Group) -> set[int]:
        times = {row.ts for _, row in group.accepted}
        left = {max(0, time - self._difference) for time in times}
        right = {time + 1 for time in times if any(time + 1 <= other <= time + 1 + self._difference for other in times)}
        return left | right

    def _is_open(self, start: int) -> bool:
        return start + self._difference >= self._boundary

    def _order(self, time: int, existing: list[int], new: set[int]) -> list[int]:
        """STRICT 4, word for word."""
        left, right = max(0, time - self._difference), time + 1
        after_previous = sorted(new - {left, right})
        assert len(after_previous) <= 1, "only the window after the previous record is new beside a record's own two"
        if time >= self._difference:
            own = [start for start in (left, right) if start in new]
            return [*sorted(existing, reverse=True), *after_previous, *own]
        from_zero = [0] if 0 in existing or 0 in new else []
        rest = sorted(start for start in existing if start)
        return [*rest, *([right] if right in new else []), *(start for start in after_previous if start), *from_zero]

    def _change(self, key: str, start: int, *, is_new: bool) -> int | None:
        rows = len(self._groups[key].windows[start].rows)
        if self._having is None or rows <= self._having:
            return 0
        return 1 if not is_new and rows - 1 <= self._having else None

    def _output(self, order: Order, offset: int, key: str, start: int, op: int) -> None:
        rows = self._groups[key].windows[start].rows
        values = aggregate(rows)
        service = {"_pos": order.position, "_ts": max(row.ts for row in rows), "_op": op, "_offset": offset}
        bounds = {"key": key, "window_start": start, "window_end": start + self._difference}
        self._outputs.append((order, {**service, **bounds, **(dict.fromkeys(values) if op else values)}))


def run(
    rows: Sequence[Row],
    difference: int,
    grace: int,
    emit: str,
    having: int | None = None,
    places: Sequence[Place] | None = None,
    silences: Mapping[int, int] | None = None,
) -> Model:
    """Handle all rows."""
    places = places or places_alone(len(rows))
    model = Model(difference, grace, emit, places, having)
    follow(rows, places, model.take, model.rise, silences)
    return model

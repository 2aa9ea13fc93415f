"""A record-by-record model of tumbling and hopping windows: dicts and loops, to hold the vectorised operator against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import polars as pl

from engine.expressions.types.types import BIGINT, DOUBLE, STRING, Schema
from engine.frames.frames import SERVICE_COLUMNS
from engine.plan.operators.aggregation import AggregateColumn
from engine.plan.operators.windows import WindowAggregation
from tests.property.places_model import STEP, Order, Place, changed, follow, in_order, places_alone

SCHEMA = Schema((("s.key", STRING), ("s.number", BIGINT), ("s.double", DOUBLE), ("s.text", STRING)))

AGGREGATES = (
    AggregateColumn("rows", "count", None),
    AggregateColumn("numbers", "count", "s.number"),
    AggregateColumn("distinct_numbers", "count_distinct", "s.number"),
    AggregateColumn("sum_number", "sum", "s.number"),
    AggregateColumn("avg_number", "avg", "s.number"),
    AggregateColumn("sum_double", "sum", "s.double"),
    AggregateColumn("min_double", "min", "s.double"),
    AggregateColumn("max_text", "max", "s.text"),
    AggregateColumn("texts", "concat", "s.text"),
    AggregateColumn("few_texts", "collect_list", "s.text", 2),
    AggregateColumn("few_different", "collect_set", "s.text", 2),
    AggregateColumn("few_counted", "histogram", "s.text", 2),
    AggregateColumn("few_distinct", "count_distinct", "s.text", 2),
)
"""The last four are full at two values (P12)."""


class Row(NamedTuple):
    """One input record."""

    ts: int
    key: str | None
    number: int | None
    double: float | None
    text: str | None
    op: int = 0


@dataclass
class _Window:
    first: int
    latest: int
    rows: list[Row] = field(default_factory=list)


def spec(
    size: int,
    advance: int,
    grace: int,
    emit: str,
    having: str | None = None,
    aggregates: tuple[AggregateColumn, ...] = AGGREGATES,
) -> WindowAggregation:
    return WindowAggregation("w", (("key", "s.key"),), size, advance, grace, aggregates, emit, having)  # type: ignore[arg-type]


def frame(rows: Sequence[Row], first: int = 0, positions: Sequence[int] | None = None) -> pl.DataFrame:
    """The rows as an operator's input, without ranks; offsets count from 1000."""
    places = range(first, first + len(rows))
    return pl.DataFrame(
        {
            "_pos": [STEP * place for place in places] if positions is None else positions,
            "_ts": [row.ts for row in rows],
            "_op": [row.op for row in rows],
            "_key_hash": [None if row.key is None else 0 for row in rows],
            "_offset": [1000 + place for place in places],
            "_rank": [None] * len(rows),
            "s.key": [row.key for row in rows],
            "s.number": [row.number for row in rows],
            "s.double": [row.double for row in rows],
            "s.text": [row.text for row in rows],
        },
        schema={**SERVICE_COLUMNS, **SCHEMA.polars()},
    )


def emitted(output: pl.DataFrame) -> list[dict[str, Any]]:
    """The columns that the model gives too; bounds in milliseconds, doubles distinguished to the bit."""
    bounds = [pl.col(name).dt.epoch("ms") for name in ("window_start", "window_end")]
    rows = output.with_columns(bounds).drop("_key_hash").to_dicts()
    return [{name: repr(value) if isinstance(value, float) else value for name, value in row.items()} for row in rows]


def aggregate(rows: list[Row], arrived: Sequence[int] = ()) -> dict[str, Any]:
    """Every aggregate of ``AGGREGATES`` over a window's rows; ``arrived`` are their places, where they do not stand in this order."""
    numbers = [row.number for row in rows if row.number is not None]
    doubles = [row.double for row in rows if row.double is not None]
    texts = [row.text for row in rows if row.text is not None]
    values = {
        "rows": len(rows),
        "numbers": len(numbers),
        "distinct_numbers": len(set(numbers)),
        "sum_number": sum(numbers) if numbers else None,
        "avg_number": float(Fraction(sum(numbers))) / len(numbers) if numbers else None,
        "sum_double": _sum(doubles),
        "min_double": min(doubles) + 0.0 if doubles else None,
        "max_text": max(texts) if texts else None,
        "texts": "".join(texts) if texts else None,
        **_collected(
            [row.text for _, row in sorted(zip(arrived or range(len(rows)), rows, strict=True)) if row.text is not None]
        ),
    }
    return {name: repr(value) if isinstance(value, float) else value for name, value in values.items()}


def _collected(texts: list[str]) -> dict[str, Any]:
    different = list(dict.fromkeys(texts))
    return {
        "few_texts": texts[:2] or None,
        "few_different": different[:2] or None,
        "few_counted": [{"key": text, "value": texts.count(text)} for text in sorted(different)[:2]] or None,
        "few_distinct": len(different) if len(different) < 2 else None,
    }


def _sum(values: list[float]) -> float | None:
    """The exact sum, rounded once; null when it is beyond a double. (``math.fsum`` fails when only the way there is.)"""
    try:
        return float(sum(map(Fraction, values))) if values else None
    except OverflowError:
        return None


class Model:
    """Handles row after row.

    Args:
        window: size, advance and grace.
        emit: changes or final.
        places: of the rows.
        having_rows: the least count that matches, with changes the greatest.
    """

    def __init__(self, window: tuple[int, int, int], emit: str, places: Sequence[Place], having_rows: int | None = None) -> None:
        self.size, self.advance, self.grace = window
        self.emit, self.places, self.having_rows = emit, places, having_rows
        self.windows: dict[tuple[int, str], _Window] = {}
        self.outputs: list[tuple[Order, dict[str, Any]]] = []
        self.late: list[int] = []

    def take(self, number: int, row: Row, before: int) -> None:
        assert row.key is not None
        ordinal = 0
        for start in range(0, row.ts + 1, self.advance):
            if row.ts >= start + self.size:
                continue
            if start + self.size + self.grace <= before:
                self.late += [number] if number not in self.late[-1:] else []
                continue
            window = self.windows.setdefault((start, row.key), _Window(number, row.ts))
            had = len(window.rows)
            window.rows.append(row)
            window.latest = max(window.latest, row.ts)
            op = self._change(window, had)
            if self.emit == "changes" and op is not None:
                own = self.places[number]
                service = {"_pos": own.position, "_ts": window.latest, "_op": op, "_offset": 1000 + number}
                self.outputs.append((changed(own, ordinal), self._output(service, (start, row.key), window)))
                ordinal += 1

    def rise(self, position: int, time: int) -> None:
        for key in [key for key in self.windows if key[0] + self.size + self.grace <= time]:
            window = self.windows.pop(key)
            if self.emit == "final" and (self.having_rows is None or len(window.rows) >= self.having_rows):
                service = {"_pos": position, "_ts": window.latest, "_op": 0, "_offset": -1}
                self.outputs.append((Order(position, (), (key[0], window.first)), self._output(service, key, window)))

    def _change(self, window: _Window, had: int) -> int | None:
        if self.having_rows is None or len(window.rows) <= self.having_rows:
            return 0
        return 1 if 0 < had <= self.having_rows else None

    def _output(self, service: dict[str, Any], key: tuple[int, str], window: _Window) -> dict[str, Any]:
        values = aggregate(window.rows)
        bounds = {"key": key[1], "window_start": key[0], "window_end": key[0] + self.size}
        return {**service, **bounds, **(dict.fromkeys(values) if service["_op"] else values)}


def run(
    rows: Sequence[Row],
    size: int,
    advance: int,
    grace: int,
    emit: str,
    having_rows: int | None = None,
    places: Sequence[Place] | None = None,
    silences: Mapping[int, int] | None = None,
) -> tuple[list[dict[str, Any]], list[int]]:
    """Handle row after row; returns what is emitted, and the numbers of late rows."""
    places = places or places_alone(len(rows))
    model = Model((size, advance, grace), emit, places, having_rows)
    follow(rows, places, model.take, model.rise, silences)
    return in_order(model.outputs), model.late

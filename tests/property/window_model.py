"""A record-by-record model of tumbling and hopping windows: dicts and loops, to hold the vectorised operator against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import polars as pl

from engine.expressions.types.types import BIGINT, DOUBLE, STRING, Schema
from engine.plan.operators.aggregation import AggregateColumn
from engine.plan.operators.windows import WindowAggregation

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


def frame(rows: Sequence[Row], first_pos: int = 0) -> pl.DataFrame:
    """The rows as an operator's input; positions are ten apart, offsets count from 1000."""
    places = range(first_pos, first_pos + len(rows))
    return pl.DataFrame(
        {
            "_pos": [10 * place for place in places],
            "_ts": [row.ts for row in rows],
            "_op": [row.op for row in rows],
            "_key_hash": [0] * len(rows),
            "_offset": [1000 + place for place in places],
            "s.key": [row.key for row in rows],
            "s.number": [row.number for row in rows],
            "s.double": [row.double for row in rows],
            "s.text": [row.text for row in rows],
        },
        schema={
            "_pos": pl.Int64,
            "_ts": pl.Int64,
            "_op": pl.Int8,
            "_key_hash": pl.UInt64,
            "_offset": pl.Int64,
            **SCHEMA.polars(),
        },
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


def run(
    rows: Sequence[Row], size: int, advance: int, grace: int, emit: str, having_rows: int | None = None
) -> list[dict[str, Any]]:
    """Handle record after record; ``having_rows`` is the least count that matches."""
    stream_time = -1
    windows: dict[tuple[int, str], _Window] = {}
    outputs: list[dict[str, Any]] = []
    for place, row in enumerate(rows):
        if row.key is None or row.op:
            continue
        stream_time = max(stream_time, row.ts)
        for start in range(0, row.ts + 1, advance):
            if row.ts >= start + size or start + size + grace <= stream_time:
                continue
            window = windows.setdefault((start, row.key), _Window(place, row.ts))
            had = len(window.rows)
            window.rows.append(row)
            window.latest = max(window.latest, row.ts)
            if emit == "changes":
                outputs += _change(place, (start, row.key), window, size, had, having_rows)
        if emit == "final":
            due = [key for key in windows if key[0] + size + grace <= stream_time]
            for key in sorted(due, key=lambda key: (key[0], windows[key].first)):
                window = windows.pop(key)
                if having_rows is None or len(window.rows) >= having_rows:
                    outputs.append(_output(place, key, window, size, 0))
    return outputs


def _change(
    place: int, key: tuple[int, str], window: _Window, size: int, had: int, having_rows: int | None
) -> list[dict[str, Any]]:
    matches = having_rows is None or len(window.rows) <= having_rows
    if matches:
        return [_output(place, key, window, size, 0)]
    matched = 0 < had <= (having_rows or 0)
    return [_output(place, key, window, size, 1)] if matched else []


def _output(place: int, key: tuple[int, str], window: _Window, size: int, op: int) -> dict[str, Any]:
    values = aggregate(window.rows)
    service = {"_pos": 10 * place, "_ts": window.latest, "_op": op, "_offset": 1000 + place}
    bounds = {"key": key[1], "window_start": key[0], "window_end": key[0] + size}
    return {**service, **bounds, **(dict.fromkeys(values) if op else values)}

"""Naive aggregates, running aggregation and aggregation over tables: lists of rows, aggregated afresh after every record."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import polars as pl
from hypothesis import strategies as st

from engine.expressions.aggregates.aggregates import CallOptions
from engine.expressions.types.types import BIGINT, DOUBLE, STRING, Schema, decimal
from engine.frames.frames import SERVICE_COLUMNS
from engine.plan.operators.aggregation import AggregateColumn

SCHEMA = Schema(
    (
        ("s.key", STRING),
        ("s.group", STRING),
        ("s.number", BIGINT),
        ("s.double", DOUBLE),
        ("s.text", STRING),
        ("s.money", decimal(20, 2)),
    )
)

UNDOABLE = (
    AggregateColumn("rows", "count", None),
    AggregateColumn("numbers", "count", "s.number"),
    AggregateColumn("distinct_texts", "count_distinct", "s.text"),
    AggregateColumn("distinct_doubles", "count_distinct", "s.double"),
    AggregateColumn("sum_number", "sum", "s.number"),
    AggregateColumn("sum_double", "sum", "s.double"),
    AggregateColumn("sum_money", "sum", "s.money"),
    AggregateColumn("avg_double", "avg", "s.double"),
    AggregateColumn("stddev_double", "stddev", "s.double"),
    AggregateColumn("variance_number", "variance", "s.number"),
    AggregateColumn("stddev_money", "stddev", "s.money"),
    AggregateColumn("texts", "histogram", "s.text"),
    AggregateColumn("numbers_by_text", "histogram", "s.number"),
    AggregateColumn("few_texts", "histogram", "s.text", 2),
    AggregateColumn("all_texts", "ksql_histogram", "s.text"),
    AggregateColumn("total_or_0", "ksql_sum", "s.number"),
    AggregateColumn("mean_or_0", "ksql_avg", "s.double"),
    AggregateColumn("variance_or_0", "ksql_stddev_samp", "s.double"),
    AggregateColumn("stddev_or_0", "ksql_stddev_sample", "s.money"),
    AggregateColumn("correlation", "correlation", "s.number", None, CallOptions(("s.double",))),
    AggregateColumn("correlation_of_numbers", "correlation", "s.number", None, CallOptions(("abs(s.number)",))),
    AggregateColumn("median", "median", "s.double"),
    AggregateColumn("percentile", "percentile", "s.number", None, CallOptions(fraction="0.3")),
    AggregateColumn("approximate", "approx_percentile", "s.double", None, CallOptions(fraction="0.75")),
    AggregateColumn("only_text", "attr", "s.text"),
    AggregateColumn("only_double", "attr", "s.double"),
)
IN_ORDER = (
    AggregateColumn("trace", "trace", "s.text"),
    AggregateColumn("list", "collect_list", "s.text"),
    AggregateColumn("list_with_nulls", "ksql_collect_list", "s.text"),
)
"""Those of a table that depend on the order of its changes."""
OTHERS = (
    AggregateColumn("min_text", "min", "s.text"),
    AggregateColumn("max_double", "max", "s.double"),
    AggregateColumn("first_text", "first", "s.text"),
    AggregateColumn("last_number", "last", "s.number"),
    AggregateColumn("first_arrived", "first_by_arrival", "s.money"),
    AggregateColumn("last_arrived", "last_by_arrival", "s.double"),
    AggregateColumn("list", "collect_list", "s.text"),
    AggregateColumn("set", "collect_set", "s.double"),
    AggregateColumn("set_of_numbers", "collect_set", "s.number"),
    AggregateColumn("few", "collect_list", "s.text", 3),
    AggregateColumn("few_different", "collect_set", "s.number", 2),
    AggregateColumn("few_distinct", "count_distinct", "s.text", 3),
    AggregateColumn("few_numbers", "histogram", "s.number", 2),
    AggregateColumn("top_numbers", "top_k", "s.number", 3),
    AggregateColumn("top_text", "top_k", "s.text", 1),
    AggregateColumn("joined", "concat", "s.text"),
    AggregateColumn("text_of_least", "min_by", "s.text", None, CallOptions(("s.number",))),
    AggregateColumn("double_of_greatest", "max_by", "s.double", None, CallOptions(("s.text",))),
    AggregateColumn("first_texts", "first_by_arrival", "s.text", 3),
    AggregateColumn("last_texts", "last_by_arrival", "s.text", 3),
    AggregateColumn("first_or_null", "ksql_earliest_by_offset", "s.number", None, CallOptions(keeps_nulls=True)),
    AggregateColumn("last_or_null", "ksql_latest_by_offset", "s.text", None, CallOptions(keeps_nulls=True)),
    AggregateColumn("first_or_nulls", "ksql_earliest_by_offset", "s.text", 2, CallOptions(keeps_nulls=True)),
    AggregateColumn("last_or_nulls", "ksql_latest_by_offset", "s.number", 2, CallOptions(keeps_nulls=True)),
    AggregateColumn("list_with_nulls", "ksql_collect_list", "s.text"),
    AggregateColumn("set_with_null", "ksql_collect_set", "s.double", 3),
    AggregateColumn("top_rows", "ksql_topk", "s.number", 3, CallOptions(("s.text", "s.money"))),
    AggregateColumn("top_distinct", "top_k_distinct", "s.number", 3),
    AggregateColumn("top_distinct_texts", "ksql_topkdistinct", "s.text", 2),
)
ALL = UNDOABLE + OTHERS


class Row(NamedTuple):
    """One input record."""

    ts: int
    key: str | None
    group: str | None
    number: int | None
    double: float | None
    text: str | None
    money: Decimal | None
    op: int = 0


DOUBLES = st.one_of(
    st.sampled_from([0.0, -0.0, 0.1, 1e308, -1e308, 5e-324, -1e16, 1.0, 1e16, float("nan"), float("inf")]),
    st.floats(min_value=-1e300, max_value=1e300, allow_nan=False),
)
ROWS = st.lists(
    st.builds(
        Row,
        ts=st.integers(0, 20),
        key=st.sampled_from(["a", "b", "c", "d", None]),
        group=st.sampled_from(["x", "x", "y", "z", None]),
        number=st.one_of(st.none(), st.integers(-3, 3), st.integers(-(2**62), 2**62)),
        double=st.one_of(st.none(), DOUBLES),
        text=st.one_of(st.none(), st.sampled_from(["x", "y", "zz", ""])),
        money=st.one_of(st.none(), st.integers(-(10**18), 10**18).map(lambda cents: Decimal(cents).scaleb(-2))),
        op=st.sampled_from([0, 0, 0, 0, 1]),
    ),
    max_size=40,
)
CUTS = st.lists(st.integers(0, 40), max_size=12)


def slices(rows: Sequence[Row], cuts: Sequence[int]) -> list[tuple[int, int]]:
    """Where batches begin and end: never inside a pair that shares a place."""
    return [*itertools.pairwise([0, *sorted({cut - cut % 2 for cut in cuts if 1 < cut < len(rows)}), len(rows)])]


def rank(place: int) -> bytes:
    """The order of a record at the place that it shares with another one, which time has released together with it."""
    return b"\0" + place.to_bytes(8, "big") + b"\1"


def put_frame(rows: Sequence[Row], first: int = 0) -> pl.DataFrame:
    """The rows as puts of a table: each has a place of its own."""
    places = pl.Series("_pos", range(10 * first, 10 * (first + len(rows)), 10), dtype=pl.Int64)
    return frame(rows, first).with_columns(places, pl.lit(None, pl.Binary).alias("_rank"))


def frame(rows: Sequence[Row], first: int = 0) -> pl.DataFrame:
    """The rows as an operator's input; pairs of records share a place, offsets count from 1000."""
    places = range(first, first + len(rows))
    columns = [[getattr(row, name.removeprefix("s.")) for row in rows] for name in SCHEMA]
    return pl.DataFrame(
        {
            "_pos": [10 * (place // 2) for place in places],
            "_ts": [row.ts for row in rows],
            "_op": [row.op for row in rows],
            "_key_hash": [None if row.key is None else 0 for row in rows],
            "_offset": [1000 + place for place in places],
            "_rank": [rank(place) for place in places],
            **dict(zip(SCHEMA, columns, strict=True)),
        },
        schema={**SERVICE_COLUMNS, **SCHEMA.polars()},
    )


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """An output row with values that compare: doubles distinguished to the bit, but spreads only to twelve digits."""
    return {name: _plain(name, value) for name, value in row.items() if name != "_key_hash"}


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.12g}" if name.startswith(("stddev", "variance", "correlation")) else repr(value + 0.0)
    if isinstance(value, list):
        return [tuple(each.values()) if isinstance(each, dict) else _plain(name, each) for each in value]
    return value


def values(rows: Sequence[Row], columns: Sequence[AggregateColumn], *, is_table: bool = False) -> dict[str, Any]:
    """Every aggregate over rows in arrival order. A table's emptied group has sums of 0 (A2)."""
    results = {column.name: _aggregate(column, rows) for column in columns}
    if is_table and not rows:
        results |= {column.name: _zero(column) for column in columns if column.function == "sum"}
    return plain(results)


def _zero(column: AggregateColumn) -> Any:
    return {"s.number": 0, "s.double": 0.0, "s.money": Decimal(0)}[column.argument or ""]


def _aggregate(column: AggregateColumn, rows: Sequence[Row]) -> Any:
    if column.argument is None:
        return len(rows)
    if (known := _by_entry(column, rows)) is not MISSING:
        return known
    name = column.argument.removeprefix("s.")
    pairs = [(row.ts, getattr(row, name)) for row in rows]
    pairs = [
        (ts, value) for ts, value in pairs if value is not None and not (isinstance(value, float) and not math.isfinite(value))
    ]
    found = [value + 0.0 if isinstance(value, float) else value for _, value in pairs]
    if column.function in ("count", "count_distinct"):
        distinct = len(set(found))
        if column.limit is not None and distinct >= column.limit:
            return None
        return len(found) if column.function == "count" else distinct
    return _of_some(column, pairs, found) if found else None


MISSING = object()


def _by_entry(column: AggregateColumn, rows: Sequence[Row]) -> Any:
    """Of those that keep nulls, take several values of a row, or know what nothing gives; MISSING of others."""
    texts = [column.argument or "", *(column.options.further if column.options is not None else ())]
    given = [tuple(_value(row, text) for text in texts) for row in rows]
    values = [value for value, *_ in given]
    kept = [value for value in values if value is not None]
    keeps_nulls = column.options is not None and column.options.keeps_nulls
    match column.function:
        case "attr":
            return values[0] if len(set(values)) == 1 else None
        case "ksql_collect_list":
            return values
        case "ksql_collect_set":
            return list(dict.fromkeys(values))[: column.limit]
        case "first_by_arrival" | "ksql_earliest_by_offset" | "last_by_arrival" | "ksql_latest_by_offset":
            return _by_arrival(column, values if keeps_nulls else kept)
        case "min_by" | "max_by":
            found = [(value, by) for value, by in given if by is not None]
            choose = min if column.function == "min_by" else max
            return choose(found, key=lambda pair: pair[1])[0] if found else None
        case "correlation":
            return _correlation([pair for pair in given if None not in pair])
        case "ksql_topk" if len(texts) > 1:
            return sorted((row for row in given if row[0] is not None), key=lambda row: row[0], reverse=True)[: column.limit]
        case "top_k_distinct" | "ksql_topkdistinct":
            top = sorted(set(kept), reverse=True)[: column.limit]
            return top or ([] if column.function == "ksql_topkdistinct" else None)
        case "median" | "percentile" | "approx_percentile":
            return _percentile(column, [float(value) for value in kept]) if kept else None
        case "ksql_histogram":
            return sorted(Counter(kept).items())
        case "ksql_sum":
            return _sum(kept) if kept else 0
        case "ksql_avg" | "ksql_stddev_samp" | "ksql_stddev_sample":
            known = {"ksql_avg": "avg", "ksql_stddev_samp": "variance", "ksql_stddev_sample": "stddev"}[column.function]
            few = len(kept) < (1 if known == "avg" else 2)
            return 0.0 if few else _of_some(replace(column, function=known), [], kept)
    return MISSING


def _value(row: Row, text: str) -> Any:
    if text.startswith("abs("):
        number = _value(row, text[len("abs(") : -1])
        return None if number is None else abs(number)
    value = getattr(row, text.removeprefix("s."))
    return (value + 0.0 if math.isfinite(value) else None) if isinstance(value, float) else value


def _by_arrival(column: AggregateColumn, values: list[Any]) -> Any:
    is_first = column.function in ("first_by_arrival", "ksql_earliest_by_offset")
    if column.limit is None:
        return None if not values else values[0] if is_first else values[-1]
    chosen = values[: column.limit] if is_first else values[-column.limit :]
    return chosen or ([] if column.function.startswith("ksql_") else None)


def _correlation(pairs: list[tuple[Any, Any]]) -> float | None:
    if any(isinstance(value, float) for pair in pairs for value in pair):
        pairs = [(float(x), float(y)) for x, y in pairs]
    exact = [(Fraction(x), Fraction(y)) for x, y in pairs]
    count = len(exact)
    means = [sum(pair[i] for pair in exact) / count if count else 0 for i in (0, 1)]
    left, right = (sum((pair[i] - means[i]) ** 2 for pair in exact) for i in (0, 1))
    if not left or not right:
        return None
    shared = sum(((x - means[0]) * (y - means[1]) for x, y in exact), Fraction(0))
    size = math.sqrt(float(shared**2 / (left * right)))
    return size if shared >= 0 else -size


def _percentile(column: AggregateColumn, values: list[float]) -> float:
    is_approximate = column.function == "approx_percentile"
    fraction = 0.5 if column.options is None else float(column.options.fraction or 0)
    values = sorted(_middle_of_class(value) if is_approximate else value for value in values)
    place = fraction * (len(values) - 1)
    below = math.floor(place)
    low, high = values[below], values[min(below + 1, len(values) - 1)]
    return low if low == high else low * (1 - (place - below)) + high * (place - below)


def _middle_of_class(value: float) -> float:
    """The middle of what shares a value's power of two and the 64th part of it."""
    mantissa, exponent = math.frexp(abs(value))
    if value == 0 or exponent < -1021:
        step = math.ldexp(1.0, -1028)
        number = math.floor(abs(value) / step)
        return math.copysign(0.0 if number == 0 else number * step + step / 2, value) + 0.0
    step = math.ldexp(1.0, exponent - 7)
    least = math.floor(math.ldexp(mantissa, 7)) * step
    return math.copysign(least + step / 2, value)


def _of_some(column: AggregateColumn, pairs: list[tuple[int, Any]], found: list[Any]) -> Any:
    match column.function:
        case "sum":
            return _sum(found)
        case "avg":
            total = _rounded(sum(map(Fraction, found)))
            return None if total is None else total / len(found)
        case "variance" | "stddev":
            return _spread(list(map(Fraction, found)), is_root=column.function == "stddev")
        case "min" | "max":
            return min(found) if column.function == "min" else max(found)
        case "first" | "last":
            times = [ts for ts, _ in pairs]
            place = times.index(min(times)) if column.function == "first" else len(times) - 1 - times[::-1].index(max(times))
            return found[place]
        case "first_by_arrival" | "last_by_arrival":
            return found[0] if column.function == "first_by_arrival" else found[-1]
        case "collect_list":
            return found[: column.limit]
        case "collect_set":
            return list(dict.fromkeys(found))[: column.limit]
        case "top_k":
            return sorted(found, reverse=True)[: column.limit]
        case "histogram":
            return sorted(Counter(map(str, found)).items())[: column.limit]
        case _:
            return "".join(found)


def _sum(found: list[Any]) -> Any:
    if isinstance(found[0], float):
        return _rounded(sum(map(Fraction, found)))
    total = sum(found)
    return None if isinstance(total, int) and not -(2**63) <= total < 2**63 else total


def _spread(found: list[Fraction], *, is_root: bool) -> float | None:
    if len(found) < 2:
        return None
    mean = sum(found) / len(found)
    variance = sum((value - mean) ** 2 for value in found) / (len(found) - 1)
    if not is_root:
        return _rounded(variance)
    return float(Fraction(math.isqrt(int(variance * 4**1400)), 2**1400))


def _rounded(exact: Fraction) -> float | None:
    try:
        return float(exact)
    except OverflowError:
        return None


_BOUNDED = ("count_distinct", "collect_list", "collect_set", "ksql_collect_list", "ksql_collect_set", "histogram")
"""Those whose limit is a bound, and not what was asked for."""


def full(results: dict[str, Any], columns: Sequence[AggregateColumn]) -> int:
    """How many of the collections are full (P12)."""
    limited = [(column, results[column.name]) for column in columns if column.limit is not None and column.function in _BOUNDED]
    return sum(
        found is None if column.function == "count_distinct" else len(found or []) == column.limit for column, found in limited
    )


@dataclass
class Shown:
    """Which groups have a result that is shown, when only those with at most ``most`` rows are."""

    most: int | None
    groups: set[str] = field(default_factory=set)

    def output(self, group: str, rows: int) -> int | None:
        """The ``_op`` of a group's next output, None for no output."""
        if self.most is None or rows <= self.most:
            self.groups.add(group)
            return 0
        if group in self.groups:
            self.groups.remove(group)
            return 1
        return None


def _output(at: tuple[int, bytes | None], place: int, group: str, ts: int, op: int, results: dict[str, Any]) -> dict[str, Any]:
    service = {"_pos": at[0], "_ts": ts, "_op": op, "_offset": 1000 + place, "_rank": at[1]}
    return {**service, "group": group, **(dict.fromkeys(results) if op else results)}


def run_stream(rows: Sequence[Row], columns: Sequence[AggregateColumn], most: int | None = None) -> list[dict[str, Any]]:
    """A3 over one record after the other, by ``group``; ``most`` is the greatest number of rows that ``having`` lets pass."""
    groups: dict[str, list[Row]] = {}
    shown = Shown(most)
    outputs = []
    for place, row in enumerate(rows):
        if row.group is None or row.op:
            continue
        held = groups.setdefault(row.group, [])
        held.append(row)
        op = shown.output(row.group, len(held))
        if op is not None:
            outputs.append(
                _output(
                    (10 * (place // 2), rank(place)), place, row.group, max(each.ts for each in held), op, values(held, columns)
                )
            )
    return outputs


@dataclass
class TableGroups:
    """A1, A2 over one change after the other: the rows of a table by ``key``, aggregated by ``group``."""

    columns: Sequence[AggregateColumn]
    retention_ms: int | None
    most: int | None = None
    latest: dict[str, Row] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)
    traces: dict[str, str] = field(default_factory=dict)
    stacks: dict[str, list[str | None]] = field(default_factory=dict)
    counters: Counter[str] = field(default_factory=Counter)
    outputs: list[dict[str, Any]] = field(default_factory=list)
    clock: int = -1

    def run(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        shown = Shown(self.most)
        for place, row in enumerate(rows):
            self._put(place, row, shown)
        return self.outputs

    def _put(self, place: int, row: Row, shown: Shown) -> None:
        if row.key is None:
            self.counters["null_key"] += 1
            return
        before, self.clock = self.clock, max(self.clock, row.ts)
        if self.retention_ms is not None and row.ts < before - self.retention_ms:
            self.counters["table_history_expired"] += 1
            return
        known = self.latest.get(row.key)
        is_replacing = known is not None and (known.op == 0 or self.retention_ms is not None)
        if known is not None and is_replacing and row.ts < known.ts:
            self.counters["out_of_order"] += 1
            if self.retention_ms is not None:
                return
        if row.op == 0 and row.group is None:
            self.counters["null_group"] += 1
        self.latest[row.key] = row
        old = known if known is not None and known.op == 0 and known.group is not None else None
        new = row if row.op == 0 and row.group is not None else None
        touched = {each.group: None for each in (old, new) if each is not None and each.group is not None}
        for group in touched:
            self._trace(group, old, new)
            self.times[group] = max(row.ts, self.times.get(group, row.ts))
            held = [each for each in self.latest.values() if each.op == 0 and each.group == group]
            if new is not None and old is not None and new.group != old.group and group == old.group:
                held = [each for each in held if each is not row]
            op = shown.output(group, len(held))
            if op is not None:
                own = self.stacks[group]
                lists = {"list": [text for text in own if text is not None] or None, "list_with_nulls": list(own)}
                results = {**values(held, self.columns, is_table=True), "trace": self.traces[group], **lists}
                if any_full := full(results, self.columns):
                    self.counters["collection_full"] += any_full
                second = b"\1\0\0\0\1\0\0" if new is not None and group == new.group else b"\0\2"
                at = 10 * place, second if len(touched) > 1 else None
                self.outputs.append(_output(at, place, group, self.times[group], op, results))

    def _trace(self, group: str, old: Row | None, new: Row | None) -> None:
        trace = self.traces.get(group, "0")
        stack = self.stacks.setdefault(group, [])
        if old is not None and old.group == group:
            del stack[len(stack) - 1 - stack[::-1].index(old.text)]
        if new is not None and new.group == group:
            stack.append(new.text)
        for mark, row in (("-", old), ("+", new)):
            if row is not None and row.group == group and row.text is not None:
                trace += mark + row.text
        self.traces[group] = trace

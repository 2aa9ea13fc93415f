"""Rows as tests compare them: values of their columns' types, written as the file would write them.

A row that is expected says as much as it wants to: columns that no row of its list names are not looked at, one that only others
name is null in it, and ``$ts`` counts where it is given.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import polars as pl

from engine.expressions.types.types import TIMESTAMP, ColumnType, Schema
from engine.formats.json.json_values import conform_values
from engine.frames.frames import OP, TS

RELATIVE_TOLERANCE: Final = 1e-9
"""How far a double may be from the expected one: sums of the same numbers differ in their last digits."""

CONTROLS: Final = ("$op", "$ts")
OPS: Final = {"upsert": 0, "delete": 1}

_PLAIN_TEXT = re.compile(r"[A-Za-z_](?:[\w .+-]*[\w.+-])?")
_WORDS = frozenset(("true", "false", "null"))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Row:
    """A record of a stream, a change of a table, or a row of it.

    Attributes:
        values: column → value: Python's own types, maps as dicts, timestamps in UTC.
        is_delete: a change that takes the row away.
        ts: the result time in ms; None in an expected row that leaves it open.
    """

    values: dict[str, Any]
    is_delete: bool = False
    ts: int | None = None

    def text(self, columns: Sequence[str], *, has_ts: bool) -> str:
        """Write the row as in a test file; of a delete what is not null."""
        parts = ["$op: delete"] if self.is_delete else []
        if has_ts and self.ts is not None:
            parts.append(f"$ts: {self.ts}")
        shown = ((name, self.values[name]) for name in columns if name in self.values)
        parts += [f"{name}: {written(value)}" for name, value in shown if not (self.is_delete and value is None)]
        return "{" + ", ".join(parts) + "}"


@dataclass(frozen=True, slots=True)
class ExpectedRows:
    """A list of expected rows.

    Attributes:
        columns: what some row names, in the result's order.
        has_ts: some row says its time.
    """

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    has_ts: bool = False

    def matches(self, wanted: Row, found: Row) -> bool:
        """Whether a found row is what one of these asks for."""
        if wanted.is_delete != found.is_delete or wanted.ts not in (None, found.ts):
            return False
        return all(equal(value, found.values.get(name)) for name, value in wanted.values.items())


def expected_rows(given: Any, columns: Schema) -> tuple[ExpectedRows, list[tuple[str, str]]]:
    """Read a list of expected rows; returns them and (pointer, detail) of every fault."""
    faults: list[tuple[str, str]] = []
    if not isinstance(given, list):
        return ExpectedRows((), ()), [("", "write a list of rows, [] for none")]
    objects: list[dict[str, Any]] = [row if isinstance(row, dict) else {} for row in given]
    faults += [(f"/{i}", "a row is an object of its columns") for i, row in enumerate(given) if not isinstance(row, dict)]
    known = f"the result has {', '.join(columns.names)}; beside them a row takes $op and $ts"
    for index, row in enumerate(objects):
        strange = [name for name in row if name not in columns and name not in CONTROLS]
        faults += [(f"/{index}/{name}", f"there is no column {name!r}; {known}") for name in strange]
    used = tuple(name for name in columns.names if any(name in row for row in objects))
    values = {name: _column([row.get(name) for row in objects], name, columns[name], faults) for name in used}
    times = _times([row.get("$ts") for row in objects], faults)
    rows: list[Row] = []
    for index, row in enumerate(objects):
        op = row.get("$op", "upsert")
        if op not in OPS:
            faults.append((f"/{index}/$op", "$op is delete, or left out"))
        rows.append(Row({name: values[name][index] for name in used}, OPS.get(op, 0) == 1, times[index]))
    return ExpectedRows(used, tuple(rows), any(ts is not None for ts in times)), faults


def rows_of(changes: pl.DataFrame, columns: Schema) -> list[Row]:
    """Return the rows of a frame with ``_ts``, ``_op`` and the result's columns."""
    values = {name: plain_values(changes[name].to_list(), columns[name]) for name in columns.names}
    return [
        Row({name: values[name][index] for name in columns.names}, op != 0, ts)
        for index, (ts, op) in enumerate(zip(changes[TS].to_list(), changes[OP].to_list(), strict=True))
    ]


def rows_of_json(answers: Sequence[dict[str, Any]], columns: Schema) -> list[Row]:
    """Return rows that a service answered; records carry their time."""
    values = {name: _conformed([answer.get(name) for answer in answers], columns[name])[0] for name in columns.names}
    return [
        Row(
            {name: values[name][index] for name in columns.names},
            answer.get("$op") == "delete",
            answer.get("$event_time_ms"),
        )
        for index, answer in enumerate(answers)
    ]


def plain_values(values: list[Any], declared: ColumnType) -> list[Any]:
    """Bring values as Polars gives them into the form in which rows hold them."""
    return [plain(value, declared) for value in values] if declared.is_nested else values


def plain(value: Any, declared: ColumnType) -> Any:
    """Bring one value into the form in which rows hold it: a map is a dict."""
    if value is None:
        return None
    if declared.kind == "array" and declared.element is not None:
        return [plain(item, declared.element) for item in value]
    if declared.kind == "map" and declared.value is not None:
        return {item["key"]: plain(item["value"], declared.value) for item in value}
    if declared.kind == "struct":
        return {name: plain(value[name], kind) for name, kind in declared.fields}
    return value


def equal(wanted: Any, found: Any) -> bool:
    """Whether two values are the same; doubles within ``RELATIVE_TOLERANCE``."""
    if isinstance(wanted, float) and isinstance(found, float):
        return math.isclose(wanted, found, rel_tol=RELATIVE_TOLERANCE, abs_tol=RELATIVE_TOLERANCE)
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(map(equal, wanted, found))
    if isinstance(wanted, dict) and isinstance(found, dict):
        return wanted.keys() == found.keys() and all(equal(value, found[name]) for name, value in wanted.items())
    return bool(wanted == found)


def written(value: Any) -> str:
    """Write a value as a test file would."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            is_plain = _PLAIN_TEXT.fullmatch(value) is not None and value not in _WORDS
            return value if is_plain else json.dumps(value, ensure_ascii=False)
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case date() | time():
            return f'"{value.isoformat()}"' if isinstance(value, time) else value.isoformat()
        case Decimal():
            return f'"{value}"'
        case bytes():
            return f'"{base64.b64encode(value).decode()}"'
        case list():
            return "[" + ", ".join(map(written, value)) + "]"
        case dict():
            return "{" + ", ".join(f"{written(name)}: {written(item)}" for name, item in value.items()) + "}"
        case _:
            return str(value)


def milliseconds(value: Any) -> int | None:
    """Read a time: RFC 3339 with a zone, or milliseconds since 1970; None where it is neither."""
    series, _ = conform_values("", [value], TIMESTAMP)
    instant = series.item(0)
    return None if instant is None else (instant - _EPOCH) // timedelta(milliseconds=1)


def _times(values: list[Any], faults: list[tuple[str, str]]) -> list[int | None]:
    times = [None if value is None else milliseconds(value) for value in values]
    for index, (value, ts) in enumerate(zip(values, times, strict=True)):
        if value is not None and ts is None:
            faults.append((f"/{index}/$ts", "$ts is a time such as 2024-01-01T00:00:00Z, or milliseconds since 1970"))
    return times


def _column(values: list[Any], name: str, declared: ColumnType, faults: list[tuple[str, str]]) -> list[Any]:
    converted, bad = _conformed(values, declared)
    faults += [(f"/{index}/{name}", f"{written(values[index])} is no {declared}") for index in bad]
    return converted


def _conformed(values: list[Any], declared: ColumnType) -> tuple[list[Any], list[int]]:
    """Convert values as ``json.loads`` gives them; returns them and the places of those that do not fit."""
    if declared.kind == "decimal" or declared.is_nested:
        values = json.loads(json.dumps(values), parse_float=Decimal)
    series, bad = conform_values("", values, declared)
    places = [] if bad is None else [index for index, is_bad in enumerate(bad.to_list()) if is_bad]
    return plain_values(series.to_list(), declared), places

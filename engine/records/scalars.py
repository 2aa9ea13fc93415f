"""The one validator of scalars: values that some reader, table or answer cannot hold, in a column of its own or at any depth in one.

Whole columns at a time. It gets values of their declared type: ``conform`` has refused those that cannot be converted.

- a double is finite: JSON has neither NaN nor infinity (``not_finite``);
- a date or timestamp is in the years 1 to 9999, which Python, Postgres's text and RFC 3339 have in common (``wrong_type``);
- text, also as the key of a map, has no U+0000, which Postgres cannot store (``invalid_string``);
- integers and decimals are bounded by their type, halves of surrogate pairs by the form of text: ``conform`` and the readers check both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Final

import polars as pl

from engine.definition.relations import EventTimeUnit
from engine.expressions.types.types import ColumnType
from engine.frames.nesting import KEY, VALUE, elements_of, rows_with

FIRST_DAY, LAST_DAY = (date(1, 1, 1) - date(1970, 1, 1)).days, (date(9999, 12, 31) - date(1970, 1, 1)).days

FEW_ROWS = 256
"""Up to this number of texts, a check in Python is faster than making a query plan."""

_PER_DAY = {"ms": 86_400_000, "us": 86_400_000_000}
_JUDGED = ("double", "date", "timestamp", "string")


@dataclass(frozen=True, slots=True)
class Fault:
    """One reason with the rows it refuses."""

    mask: pl.Series
    reason: str
    detail: str


def scalar_faults(column: pl.Series, declared: ColumnType, *, is_event_time: bool = False) -> list[Fault]:
    """Validate the values of a column at every depth.

    Args:
        column: of its declared type.
        declared: that type.
        is_event_time: its instants have their own bounds (T8) and are not validated here.

    Returns:
        The faults, in an order that depends only on the type. A detail names the place: ``v[].at``, ``v.*`` for a map's values.
    """
    return list(_faults(column, declared, column.name, is_event_time=is_event_time))


def _faults(column: pl.Series, declared: ColumnType, place: str, *, is_event_time: bool = False) -> Iterator[Fault]:
    match declared:
        case ColumnType(kind="double"):
            if not column.is_finite().all():
                yield Fault(~column.is_finite(), "not_finite", f"column {place!r} must be a finite number")
        case ColumnType(kind="date" | "timestamp"):
            holdable = is_holdable(column)
            if not is_event_time and holdable is not None and not holdable.all():
                yield Fault(~holdable, "wrong_type", f"column {place!r} must lie in the years 1 to 9999")
        case ColumnType(kind="string"):
            yield from _text_faults(column, f"column {place!r}")
        case ColumnType(kind="array", element=ColumnType() as element) if _can_fail(element):
            inside = elements_of(column)
            for fault in _faults(inside.values, element, f"{place}[]"):
                yield Fault(rows_with(fault.mask, inside.sizes), fault.reason, fault.detail)
        case ColumnType(kind="map", value=ColumnType() as value):
            inside = elements_of(column)
            keys, values = inside.values.struct.field(KEY), inside.values.struct.field(VALUE)
            for fault in (*_text_faults(keys, f"a key of column {place!r}"), *_faults(values, value, f"{place}.*")):
                yield Fault(rows_with(fault.mask, inside.sizes), fault.reason, fault.detail)
        case ColumnType(kind="struct", fields=fields):
            for name, field in fields:
                if _can_fail(field):
                    yield from _faults(column.struct.field(name), field, f"{place}.{name}")
        case _:
            pass


def _text_faults(column: pl.Series, subject: str) -> Iterator[Fault]:
    # For a few values a check in Python is enough if all are good; a mask costs a plan.
    if len(column) <= FEW_ROWS and "\0" not in "".join(filter(None, column.to_list())):
        return
    if (nul := column.str.contains("\x00", literal=True)).any():
        yield Fault(nul, "invalid_string", f"{subject} holds the character U+0000")


def is_holdable(column: pl.Series) -> pl.Series | None:
    """Return the mask of dates and instants that every reader can hold; None for other types. Checks numbers: far years have no calendar."""
    if column.dtype == pl.Date:
        return column.to_physical().is_between(FIRST_DAY, LAST_DAY)
    if isinstance(column.dtype, pl.Datetime) and column.dtype.time_unit != "ns":  # 64 bits of nanoseconds end in 2262
        per_day = _PER_DAY[column.dtype.time_unit or "us"]
        return column.to_physical().is_between(FIRST_DAY * per_day, (LAST_DAY + 1) * per_day - 1)
    return None


def _can_fail(declared: ColumnType) -> bool:
    """Whether any inner value can be invalid, so that taking the column apart is worth its time."""
    inner = [kind for kind in (declared.element, declared.value) if kind is not None] + [kind for _, kind in declared.fields]
    return declared.kind in (*_JUDGED, "map") or any(map(_can_fail, inner))


_MS_PER_SECOND = 1_000
_PER_MS: Final[dict[EventTimeUnit, int]] = {"us": 1_000, "ns": 1_000_000}

_MOST_SECONDS = ((1 << 63) - 1) // _MS_PER_SECOND
"""More would not fit into 64 bits as milliseconds. It is far after the year 9999 (T8), so values cut to it stay out of range."""


def in_ms(counted: pl.Series, unit: EventTimeUnit) -> pl.Series:
    """Return whole numbers (64 bits) in milliseconds, rounded down: times before 1970 stay before it."""
    if unit == "s":
        return counted.clip(-_MOST_SECONDS, _MOST_SECONDS) * _MS_PER_SECOND
    return counted if unit == "ms" else counted // _PER_MS[unit]

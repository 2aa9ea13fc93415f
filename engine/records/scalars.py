"""The one judge of leaves: which values of a type no reader, table or answer can hold, in a column of its own or at any depth inside one.

Whole columns at a time. It sees values that have their declared type already: what cannot be brought to it is ``conform``'s to refuse.

- a double is finite: JSON has neither NaN nor infinity (``not_finite``);
- a date or timestamp lies in the years 1 to 9999, which Python, the text of Postgres and RFC 3339 have in common (``wrong_type``);
- text, and so the key of a map, holds no U+0000, which Postgres cannot (``invalid_string``);
- integers and decimals are bounded by their type, halves of surrogate pairs by the form of text: ``conform`` and the readers see to both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

import polars as pl

from engine.expressions.types.types import ColumnType
from engine.frames.nesting import KEY, VALUE, elements_of, rows_with

FIRST_DAY, LAST_DAY = (date(1, 1, 1) - date(1970, 1, 1)).days, (date(9999, 12, 31) - date(1970, 1, 1)).days

FEW_ROWS = 256
"""Up to so many texts Python looks at more quickly than a query plan is made."""

_PER_DAY = {"ms": 86_400_000, "us": 86_400_000_000}
_JUDGED = ("double", "date", "timestamp", "string")


@dataclass(frozen=True, slots=True)
class Fault:
    """One reason with the rows it refuses."""

    mask: pl.Series
    reason: str
    detail: str


def scalar_faults(column: pl.Series, declared: ColumnType, *, is_event_time: bool = False) -> list[Fault]:
    """Judge the values of a column at every depth.

    Args:
        column: of its declared type.
        declared: that type.
        is_event_time: its instants have bounds of their own (T8) and are not judged here.

    Returns:
        The faults, in an order that the type alone decides. A detail names the place: ``v[].at``, ``v.*`` for a map's values.
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
    # Of a few values Python sees at once that all are good; a mask costs a plan.
    if len(column) <= FEW_ROWS and "\0" not in "".join(filter(None, column.to_list())):
        return
    if (nul := column.str.contains("\x00", literal=True)).any():
        yield Fault(nul, "invalid_string", f"{subject} holds the character U+0000")


def is_holdable(column: pl.Series) -> pl.Series | None:
    """Mask of the dates and instants that every reader can hold; None for other types. Looks at numbers: far years have no calendar."""
    if column.dtype == pl.Date:
        return column.to_physical().is_between(FIRST_DAY, LAST_DAY)
    if isinstance(column.dtype, pl.Datetime) and column.dtype.time_unit != "ns":  # 64 bits of nanoseconds end in 2262
        per_day = _PER_DAY[column.dtype.time_unit or "us"]
        return column.to_physical().is_between(FIRST_DAY * per_day, (LAST_DAY + 1) * per_day - 1)
    return None


def _can_fail(declared: ColumnType) -> bool:
    """Whether anything inside can be at fault, so that taking the column apart is worth its time."""
    inner = [kind for kind in (declared.element, declared.value) if kind is not None] + [kind for _, kind in declared.fields]
    return declared.kind in (*_JUDGED, "map") or any(map(_can_fail, inner))

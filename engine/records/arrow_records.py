"""Records in Arrow tables (posted streams, Parquet files), converted to raw frames for ``canonicalise``.

Arrow does not check its writers: text may be invalid UTF-8, and a time of day can have 30 hours. Polars relies on valid values of a type.
So records are checked here, and only those with invalid values are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import polars as pl
import pyarrow as pa

from engine.records.canonical import empty_rejects, reject_rows
from engine.records.excerpts import excerpt_of

_TypeRule = Callable[[pa.DataType], pa.DataType]


def records_of(table: pa.Table) -> tuple[pl.DataFrame, pl.Series, pl.DataFrame]:
    """Return ``(records, places, rejects)``: the valid records, their rows in the table, and the others, by row.

    Raises:
        pyarrow.ArrowException: the table is damaged, so its records cannot be separated.
    """
    rejects = empty_rejects()
    places = pl.int_range(table.num_rows, dtype=pl.Int64, eager=True).alias("_offset")
    if _fault(table) is not None:
        bad = _unsound(table, _checked_types(table))
        rejects = reject_rows([(row, *_reason(text), excerpt_of(shown)) for row, text, shown in bad])
        places = places.filter(~places.is_in(rejects["offset"].implode()))
        table = table.take(places.to_arrow())
    frame = cast("pl.DataFrame", pl.from_arrow(_in_microseconds(table), rechunk=False))
    return frame, places, rejects


def _fault(table: pa.Table) -> str | None:
    """Return the fault of the first value that its type does not allow, None if all are valid."""
    try:
        table.validate(full=True)
        _in_microseconds(table)
    except pa.ArrowException as error:
        return str(error)
    return None


def _in_microseconds(table: pa.Table) -> pa.Table:
    """Convert seconds to a unit that Polars has: Polars multiplies without an overflow check. Zones become UTC: their names are any text."""
    types = [_microseconds(field.type) for field in table.schema]
    fields = [field.with_type(kind) for field, kind in zip(table.schema, types, strict=True)]
    return table if types == table.schema.types else table.cast(pa.schema(fields))


def _checked_types(table: pa.Table) -> pa.Table:
    """Return the table with types that allow any value; raises ``ArrowException`` if even these do not fit."""
    schema = pa.schema([field.with_type(_loose(field.type)) for field in table.schema])
    batches = [
        pa.RecordBatch.from_arrays([column.view(_loose(column.type)) for column in batch.columns], schema=schema)
        for batch in table.to_batches()
    ]
    loose = pa.Table.from_batches(batches, schema=schema)
    loose.validate(full=True)
    return loose


def _unsound(table: pa.Table, loose: pa.Table) -> Iterator[tuple[int, str, dict[str, object]]]:
    """Yield the rows with faults, the reason, and their content. Bisecting finds them."""
    waiting = [(0, table.num_rows)]
    while waiting:
        first, last = waiting.pop()
        # Taken, not sliced: a slice of lists still has all inner values of the lists.
        text = _fault(table.take(pa.array(range(first, last), pa.int64())))
        if text is None:
            continue
        if last - first == 1:
            [shown] = loose.slice(first, 1).to_pylist()
            yield first, text, shown
        else:
            middle = (first + last) // 2
            waiting += [(middle, last), (first, middle)]


def _reason(text: str) -> tuple[str, str]:
    return ("invalid_string" if "UTF8" in text else "wrong_type"), f"an Arrow value is not of its type: {text}"


def _retyped(kind: pa.DataType, rule: _TypeRule) -> pa.DataType:
    """Apply a rule to the scalars of a type."""
    if pa.types.is_map(kind):
        return pa.map_(_retyped(kind.key_type, rule), _retyped(kind.item_type, rule))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_retyped(field.type, rule)) for field in kind.fields])
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_retyped(kind.value_type, rule)), kind.list_size)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_retyped(kind.value_type, rule)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_retyped(kind.value_type, rule)))
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _retyped(kind.value_type, rule), kind.ordered)
    return rule(kind)


def _microseconds(kind: pa.DataType) -> pa.DataType:
    return _retyped(kind, _instant)


def _instant(leaf: pa.DataType) -> pa.DataType:
    if not pa.types.is_timestamp(leaf):
        return leaf
    return pa.timestamp("us" if leaf.unit == "s" else leaf.unit, None if leaf.tz is None else "UTC")


def _loose(kind: pa.DataType) -> pa.DataType:
    return _retyped(kind, _loose_scalar)


def _loose_scalar(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_large_string(kind):
        return pa.large_binary()
    if pa.types.is_string_view(kind):
        return pa.binary_view()
    if pa.types.is_decimal(kind):
        return pa.binary(kind.byte_width)
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return pa.int64() if kind.bit_width == 64 else pa.int32()
    return kind

"""Nested values made anew from values inside that are converted, whole columns at a time and at every depth."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from engine.expressions.types.types import ColumnType
from engine.expressions.values.once import once

KEY, VALUE = "key", "value"
"""Fields of a map's entries: in frames a map is a list of structs."""

Convert = Callable[[pl.Expr, ColumnType, ColumnType], pl.Expr]
"""From a value inside and its type to that value in another type."""


def rebuilt(
    value: pl.Expr, source: ColumnType, target: ColumnType, convert: Convert, *, is_whole: bool = False
) -> pl.Expr | None:
    """Return nested values in another type of the same kind, NULL where they are; None where the kinds differ.

    Args:
        value: of type ``source``.
        source: what it is.
        target: what it becomes. A field that a struct has not is NULL in it, one that only the struct has goes.
        convert: what happens to the values right inside; called with those whose type differs.
        is_whole: called with all of them.
    """

    def inner(part: pl.Expr, own: ColumnType | None, wanted: ColumnType | None) -> pl.Expr:
        return part if own is None or wanted is None or (own == wanted and not is_whole) else convert(part, own, wanted)

    if source.kind != target.kind:
        return None
    match target.kind:
        case "array":
            return value.list.eval(inner(pl.element(), source.element, target.element))
        case "map":
            held = inner(pl.element().struct.field(VALUE), source.value, target.value)
            return value.list.eval(entries(pl.element().struct.field(KEY), held))
        case "struct":
            known = dict(source.fields)

            def fields(struct: pl.Expr) -> pl.Expr:
                made = [
                    inner(struct.struct.field(name), known[name], kind).alias(name)
                    if name in known
                    else pl.lit(None, dtype=kind.polars).alias(name)
                    for name, kind in target.fields
                ]
                return pl.when(struct.is_not_null()).then(pl.struct(made))

            return once(fields, value)
        case _:
            return None


def entries(key: pl.Expr, value: pl.Expr) -> pl.Expr:
    return pl.struct(key.alias(KEY), value.alias(VALUE))

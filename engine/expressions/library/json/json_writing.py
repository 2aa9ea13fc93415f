"""Values as JSON, column by column: as ``json_values.of_column`` writes them, for the types whose texts Polars writes alike."""

from __future__ import annotations

from typing import Final

import polars as pl

from engine.errors import InvariantBroken
from engine.expressions.library.json.json_values import escapes, quoted
from engine.expressions.types.types import STRING, ColumnType
from engine.expressions.values.rebuilding import KEY, VALUE

_ESCAPES: Final = escapes()
_WRITTEN_ALIKE: Final = ("string", "boolean", "int", "bigint")


def is_written_by_polars(kind: ColumnType) -> bool:
    """Whether ``written_as_json`` takes values of a type: doubles, bytes, decimals and times, and what holds them, it does not."""
    return all(map(is_written_by_polars, kind.inner)) if kind.is_nested else kind.kind in _WRITTEN_ALIKE


def written_as_json(value: pl.Expr, kind: ColumnType) -> pl.Expr:
    """Return values as JSON, NULL as ``null``.

    Args:
        value: the values, used several times (``once``).
        kind: their type, of those that ``is_written_by_polars`` knows.
    """
    match kind:
        case ColumnType(kind="array", element=ColumnType() as element):
            made = _between("[", value.list.eval(written_as_json(pl.element(), element)).list.join(","), "]")
        case ColumnType(kind="map", value=ColumnType() as held):
            entry = pl.element().struct
            name, inside = written_as_json(entry.field(KEY), STRING), written_as_json(entry.field(VALUE), held)
            pairs = value.list.eval(pl.element().sort_by(entry.field(KEY))).list.eval(pl.concat_str(name, pl.lit(":"), inside))
            made = _between("{", pairs.list.join(","), "}")
        case ColumnType(kind="struct"):
            made = _struct(value, kind)
        case ColumnType(kind="string"):
            made = _between('"', value.str.replace_many(_ESCAPES), '"')
        case ColumnType(kind="boolean"):
            made = pl.when(value).then(pl.lit("true")).otherwise(pl.lit("false"))
        case ColumnType(kind="int" | "bigint"):
            made = value.cast(pl.String)
        case _:
            raise InvariantBroken(f"values of type {kind} are written one by one")
    return pl.when(value.is_not_null()).then(made).otherwise(pl.lit("null"))


def _struct(value: pl.Expr, kind: ColumnType) -> pl.Expr:
    parts: list[pl.Expr] = []
    for place, (name, field) in enumerate(sorted(kind.fields, key=lambda pair: pair[0])):
        parts += [pl.lit(("," if place else "{") + quoted(name) + ":"), written_as_json(value.struct.field(name), field)]
    return pl.concat_str(*parts, pl.lit("}"))


def _between(opening: str, text: pl.Expr, closing: str) -> pl.Expr:
    return pl.concat_str(pl.lit(opening), text, pl.lit(closing))

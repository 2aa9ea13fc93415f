"""Values as JSON, column by column: as ``json_values.of_column`` writes them, for the types whose texts Polars writes alike."""

from __future__ import annotations

from typing import Final

import polars as pl

from engine.definition.library.json_values import escapes, quoted
from engine.definition.rebuilding import KEY, VALUE
from engine.definition.types import STRING, ColumnType

_ESCAPES: Final = escapes()


def written_as_json(value: pl.Expr, kind: ColumnType) -> pl.Expr | None:
    """Return values as JSON, NULL as ``null``; None for doubles, bytes and times, and what holds them."""
    match kind:
        case ColumnType(kind="array", element=ColumnType() as element):
            inside = written_as_json(pl.element(), element)
            made = None if inside is None else _between("[", value.list.eval(inside).list.join(","), "]")
        case ColumnType(kind="map", value=ColumnType() as held):
            entry = pl.element().struct
            name, inside = written_as_json(entry.field(KEY), STRING), written_as_json(entry.field(VALUE), held)
            if name is None or inside is None:
                return None
            # Sorted first: sort_by inside of a list takes its elements alone.
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
            made = None
    return None if made is None else pl.when(value.is_not_null()).then(made).otherwise(pl.lit("null"))


def _struct(value: pl.Expr, kind: ColumnType) -> pl.Expr | None:
    parts: list[pl.Expr] = []
    for place, (name, field) in enumerate(sorted(kind.fields, key=lambda pair: pair[0])):
        inside = written_as_json(value.struct.field(name), field)
        if inside is None:
            return None
        parts += [pl.lit(("," if place else "{") + quoted(name) + ":"), inside]
    return pl.concat_str(*parts, pl.lit("}"))


def _between(opening: str, text: pl.Expr, closing: str) -> pl.Expr:
    return pl.concat_str(pl.lit(opening), text, pl.lit(closing))

"""Joins rows that were read with different schemas: each column gets its declared type, or its row is a reject."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from engine.expressions.types.types import Schema
from engine.formats.port import Read
from engine.records.canonical import expected, reject_rows
from engine.records.conform import conform
from engine.records.excerpts import excerpts_of


def unify_parts(parts: Sequence[Read], columns: Schema) -> list[Read]:
    """Return the parts with one type for each column, if parts have different types for it."""
    types: dict[str, set[pl.DataType]] = {}
    for part in parts:
        if part.raw.height:
            for name, dtype in part.raw.schema.items():
                types.setdefault(name, set()).add(dtype)
    different = [name for name, found in types.items() if len(found) > 1 and name in columns]
    return [cast_part(part, columns.select(different)) for part in parts] if different else list(parts)


def cast_part(part: Read, columns: Schema) -> Read:
    """Convert columns to their declared types; a row with a value that does not fit is a reject."""
    raw, rejects = part
    good = pl.repeat(value=True, n=raw.height, dtype=pl.Boolean, eager=True)
    rows: list[tuple[int, str, str, str]] = []
    columns_now = []
    for name, declared in columns.items():
        if name not in raw.columns:
            continue
        values, bad = conform(raw.get_column(name), declared)
        columns_now.append(values)
        if bad is not None:
            new = bad & good
            places, texts = raw.get_column("_offset").filter(new).to_list(), excerpts_of(raw.filter(new).drop("_offset"))
            detail = f"column {name!r} must be {expected(declared)}"
            rows += [(place, "wrong_type", detail, text) for place, text in zip(places, texts, strict=True)]
            good &= ~new
    raw = raw.with_columns(columns_now)
    if not rows:
        return Read(raw, rejects)
    return Read(raw.filter(good), pl.concat([rejects, reject_rows(rows)]).sort("offset"))

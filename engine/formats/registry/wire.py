"""Confluent's wire format: a zero byte and the schema's number before the value; for Protocol Buffers also the message's path.

Payloads are separated in whole columns: those of one schema are read together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from engine.expressions.types.types import Schema
from engine.formats.port import Read, RegisteredSchema, SchemaKind, SchemaUnknown
from engine.formats.shapes import SchemaNotRead
from engine.records.canonical import empty_rejects, expected, reject_rows
from engine.records.conform import conform
from engine.records.excerpts import excerpt_of_bytes, excerpts_of

HEADER: Final = 5
_MAGIC: Final = b"\x00"


class PayloadsOfSchema(NamedTuple):
    """Payloads that name one schema.

    Attributes:
        number: the schema's.
        places: which payloads these are.
        values: without the header.
    """

    number: int
    places: npt.NDArray[np.int64]
    values: pl.Series


def text_of(registered: RegisteredSchema, kind: SchemaKind) -> str:
    """Return a schema's text.

    Raises:
        SchemaNotRead: it is of another language.
    """
    if registered.kind != kind:
        raise SchemaNotRead(f"it is a schema of {registered.kind}, and the relation's format is {kind.lower()}")
    return registered.text


def header_of(number: int) -> bytes:
    """Return the bytes before a value of a schema."""
    return _MAGIC + number.to_bytes(4, "big")


def with_header(payloads: pl.Series, header: bytes) -> pl.Series:
    """Put the same bytes before each payload."""
    whole = payloads.to_arrow().cast(pa.large_binary())
    joined = pc.binary_join_element_wise(pa.scalar(header, pa.large_binary()), whole, pa.scalar(b"", pa.large_binary()))
    return pl.Series("", joined)


def split_by_schema(payloads: pl.Series) -> tuple[list[PayloadsOfSchema], pl.DataFrame]:
    """Separate payloads by the schema that they name; those that name none are rejects (``no_schema_id``)."""
    heads = payloads.bin.slice(0, HEADER)
    is_framed = ((heads.bin.size() == HEADER) & heads.bin.starts_with(_MAGIC)).to_numpy()
    rejects = empty_rejects()
    if not is_framed.all():
        rows = [_unframed(int(place), payloads[int(place)]) for place in np.flatnonzero(~is_framed)]
        rejects = reject_rows(rows)
    numbers = (
        heads.bin.slice(1, 4)
        .set(pl.Series(~is_framed), b"\0\0\0\0")
        .bin.reinterpret(dtype=pl.UInt32, endianness="big")
        .to_numpy()
    )
    found = []
    for number in np.unique(numbers[is_framed]).tolist():
        places = np.flatnonzero(is_framed & (numbers == number))
        chosen = payloads if len(places) == len(payloads) else payloads.gather(places)
        found.append(PayloadsOfSchema(number, places, chosen.bin.slice(HEADER)))
    return found, rejects


def read_by_schema(payloads: pl.Series, read: Callable[[PayloadsOfSchema], Read], columns: Schema) -> Read:
    """Read the payloads of each schema together, and return the rows in the order of the payloads."""
    groups, rejects = split_by_schema(payloads)
    return rejoined([_placed(group, read) for group in groups], rejects, columns)


def rejoined(parts: list[Read], rejects: pl.DataFrame, columns: Schema) -> Read:
    """Join parts in the order of places. If their columns have different types, first convert all to the declared ones."""
    parts = unify_parts(parts, columns)
    raws = [part.raw for part in parts if part.raw.height]
    refused = pl.concat([rejects, *(part.rejects for part in parts)]).sort("offset")
    if len(raws) == 1:
        return Read(raws[0], refused)
    if not raws:
        return Read(parts[0].raw if parts else pl.DataFrame({"_offset": pl.Series([], dtype=pl.Int64)}), refused)
    return Read(pl.concat(raws, how="diagonal").sort("_offset"), refused)


def at_places(part: Read, places: npt.NDArray[np.int64]) -> Read:
    """Set each row's place to that of its payload in the whole."""
    raw, rejects = part
    if raw.height:
        raw = raw.with_columns(pl.Series("_offset", places[raw.get_column("_offset").to_numpy()], dtype=pl.Int64))
    if rejects.height:
        rejects = rejects.with_columns(pl.Series("offset", places[rejects.get_column("offset").to_numpy()], dtype=pl.Int64))
    return Read(raw, rejects)


def _placed(group: PayloadsOfSchema, read: Callable[[PayloadsOfSchema], Read]) -> Read:
    try:
        part = read(group)
    except SchemaUnknown as error:
        part = _all_refused(group, "unknown_schema", str(error))
    except SchemaNotRead as error:
        part = _all_refused(group, "schema_not_read", f"schema {group.number}: {error}")
    return at_places(part, group.places)


def _all_refused(group: PayloadsOfSchema, reason: str, detail: str) -> Read:
    rows = [(place, reason, detail, excerpt_of_bytes(payload)) for place, payload in _numbered(group.values)]
    return Read(pl.DataFrame({"_offset": pl.Series([], dtype=pl.Int64)}), reject_rows(rows))


def _numbered(values: pl.Series) -> Iterator[tuple[int, bytes]]:
    return enumerate(values.to_list())


def _unframed(place: int, payload: bytes) -> tuple[int, str, str, str]:
    if len(payload) < HEADER:
        detail = f"a record with a schema's number has at least {HEADER} bytes, this one {len(payload)}"
    else:
        detail = f"the first byte is {payload[0]} and not 0: the record was not written with a schema registry"
    return place, "no_schema_id", detail, excerpt_of_bytes(payload)


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

"""One bare column: a text, bytes, or a number in the encoding of Kafka's own serialisers (network order).

Whole columns at a time.
"""

from __future__ import annotations

from typing import Final

import polars as pl
import pyarrow as pa

from engine.expressions.types.types import ColumnType
from engine.formats.port import FormatInvalid, Read, Reader, SchemaStore, SideConfig, ValueNotWritable, Writer
from engine.frames.byte_texts import texts_of
from engine.records.canonical import reject_rows
from engine.records.excerpts import excerpt_of_bytes

_NUMBERS: Final[dict[str, pl.DataType]] = {"int": pl.Int32(), "bigint": pl.Int64(), "double": pl.Float64()}


class PlainReader:
    """Reads a column of texts, bytes or numbers."""

    def __init__(self, name: str, declared: ColumnType) -> None:
        self._name = name
        self._declared = declared

    def read(self, payloads: pl.Series) -> Read:
        number = _NUMBERS.get(self._declared.kind)
        if self._declared.kind == "bytes":
            return self._read(payloads, payloads, "")
        if number is None:
            return self._read(payloads, texts_of(payloads), "it is no text in UTF-8")
        size = 4 if self._declared.kind == "int" else 8
        fitting = payloads.set(payloads.bin.size() != size, None)
        values = fitting.bin.reinterpret(dtype=number, endianness="big")
        return self._read(payloads, values, f"{self._declared} has {size} bytes")

    def _read(self, payloads: pl.Series, values: pl.Series, fault: str) -> Read:
        places = pl.int_range(len(payloads), dtype=pl.Int64, eager=True).alias("_offset")
        raw = pl.DataFrame([values.alias(self._name), places])
        bad = values.is_null()
        if not bad.any():
            return Read(raw, reject_rows([]))
        rows = [
            (place, "wrong_type", f"column {self._name!r}: {fault}", excerpt_of_bytes(payloads[place]))
            for place in places.filter(bad)
        ]
        return Read(raw.filter(~bad), reject_rows(rows))


class PlainWriter:
    """Writes a column of texts, bytes or numbers."""

    def __init__(self, name: str, declared: ColumnType) -> None:
        self._name = name
        self._declared = declared

    def write(self, frame: pl.DataFrame) -> pl.Series:
        values = frame.get_column(self._name)
        if values.null_count():
            raise ValueNotWritable(
                f"column {self._name!r} is null, and a plain value cannot say that; write json, or leave such rows out"
            )
        number = _NUMBERS.get(self._declared.kind)
        if number is None:
            return values.cast(pl.Binary).alias("")
        big = values.cast(number).to_numpy().astype(values.cast(number).to_numpy().dtype.newbyteorder(">"))
        fixed = pa.Array.from_buffers(pa.binary(big.dtype.itemsize), len(big), [None, pa.py_buffer(big.tobytes())])
        return pl.Series("", fixed.cast(pa.large_binary()))


def string_reader(config: SideConfig, _store: SchemaStore) -> Reader:
    return PlainReader(config.single, _of_kind(config, "string"))


def bytes_reader(config: SideConfig, _store: SchemaStore) -> Reader:
    return PlainReader(config.single, _of_kind(config, "bytes"))


def kafka_reader(config: SideConfig, _store: SchemaStore) -> Reader:
    return PlainReader(config.single, _of_kind(config, "string", "bytes", *_NUMBERS))


def string_writer(config: SideConfig, _store: SchemaStore) -> Writer:
    return PlainWriter(config.single, _of_kind(config, "string"))


def bytes_writer(config: SideConfig, _store: SchemaStore) -> Writer:
    return PlainWriter(config.single, _of_kind(config, "bytes"))


def kafka_writer(config: SideConfig, _store: SchemaStore) -> Writer:
    return PlainWriter(config.single, _of_kind(config, "string", "bytes", *_NUMBERS))


def _of_kind(config: SideConfig, *kinds: str) -> ColumnType:
    declared = config.columns[config.single]
    if declared.kind not in kinds:
        raise FormatInvalid(f"{config.format} holds {' or '.join(kinds)}, and column {config.single!r} is {declared}")
    return declared

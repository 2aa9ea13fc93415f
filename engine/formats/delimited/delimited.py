"""Delimited text: one line of columns, with quotes around texts that need them. Lines without quotes are cut as whole columns."""

from __future__ import annotations

import io
from typing import Final

import polars as pl
from polars.exceptions import PolarsError

from engine.expressions.types.types import ColumnType
from engine.formats.bisecting import UndecodablePayload
from engine.formats.json.nested_json import json_texts
from engine.formats.port import FormatInvalid, Read, Reader, SchemaStore, SideConfig, Writer
from engine.frames.byte_texts import texts_of
from engine.records.canonical import expected, reject_rows
from engine.records.conform import conform
from engine.records.excerpts import excerpt_of_bytes

REASON: Final = "malformed_delimited"
_Bad = list[tuple[int, str, str, str]]
_Row = tuple[str | int | None, ...]


class DelimitedReader:
    """Reads lines. An empty value is null, as in files."""

    def __init__(self, config: SideConfig) -> None:
        self._columns = config.columns
        self._delimiter = config.delimiter

    def read(self, payloads: pl.Series) -> Read:
        texts = texts_of(payloads)
        # With a line break or a quote inside, a payload could be several lines, or a line several payloads.
        is_plain = texts.is_not_null()
        for sign in (b"\n", b"\r", b'"'):
            is_plain &= ~payloads.bin.contains(sign)
        places = pl.int_range(len(payloads), dtype=pl.Int64, eager=True)
        names = [str(place) for place in range(len(self._columns))]
        cut = texts.set(~is_plain, None).to_frame("t").select(pl.col("t").str.split(self._delimiter)).to_series()
        fits = (cut.list.len() == len(names)).fill_null(value=False)
        fields = [cut.filter(fits).list.get(place, null_on_oob=True).alias(name) for place, name in enumerate(names)]
        rows = pl.DataFrame([*fields, places.filter(fits).alias("_offset")])
        quoted, bad = self._one_by_one(payloads, (~fits).arg_true().to_list())
        if quoted:
            schema = {**dict.fromkeys(names, pl.String()), "_offset": pl.Int64()}
            rows = pl.concat([rows, pl.DataFrame(quoted, schema=schema, orient="row")]).sort("_offset")
        return self._conformed(rows.rename(dict(zip(names, self._columns.names, strict=True))), bad)

    def _one_by_one(self, payloads: pl.Series, places: list[int]) -> tuple[list[_Row], _Bad]:
        found: list[_Row] = []
        bad: _Bad = []
        for place in places:
            try:
                found.append((*self._line(payloads[place]), place))
            except UndecodablePayload as misread:
                bad.append((place, REASON, str(misread), excerpt_of_bytes(payloads[place])))
        return found, bad

    def _line(self, payload: bytes) -> _Row:
        try:
            frame = pl.read_csv(io.BytesIO(payload), has_header=False, separator=self._delimiter, infer_schema=False)
        except (PolarsError, UnicodeError) as error:
            raise UndecodablePayload(f"no delimited text: {str(error)[:200]}") from error
        if frame.height != 1:
            raise UndecodablePayload(f"{frame.height} lines, and a payload is one")
        if frame.width != len(self._columns):
            raise UndecodablePayload(f"{frame.width} values for {len(self._columns)} columns")
        return frame.row(0)

    def _conformed(self, rows: pl.DataFrame, bad: _Bad) -> Read:
        good = pl.repeat(value=True, n=rows.height, dtype=pl.Boolean, eager=True)
        columns = []
        for name, declared in self._columns.items():
            texts = rows.get_column(name)
            values, wrong = conform(texts.set(texts == "", None), declared, is_text=True)
            columns.append(values)
            if wrong is None:
                continue
            new = wrong & good
            detail = f"column {name!r} must be {expected(declared)}"
            shown = zip(rows.get_column("_offset").filter(new).to_list(), texts.filter(new).to_list(), strict=True)
            bad += [(place, "wrong_type", detail, text) for place, text in shown]
            good &= ~new
        raw = pl.DataFrame([*columns, rows.get_column("_offset")])
        return Read(raw.filter(good), reject_rows(sorted(bad)))


class DelimitedWriter:
    """Writes lines: bytes are base64, times and timestamps as in JSON; a null is written like an empty text, which is read as null."""

    def __init__(self, config: SideConfig) -> None:
        self._columns = config.columns
        self._delimiter = config.delimiter

    def write(self, frame: pl.DataFrame) -> pl.Series:
        columns = enumerate(self._columns.items())
        fields = [self._field(frame.get_column(name), declared).alias(str(place)) for place, (name, declared) in columns]
        lines = pl.DataFrame(fields).select(pl.concat_str(pl.all(), separator=self._delimiter)).to_series()
        return lines.cast(pl.Binary).alias("")

    def _field(self, values: pl.Series, declared: ColumnType) -> pl.Series:
        if declared.kind != "string":
            return json_texts(values, declared).str.strip_chars('"').set(values.is_null(), "")
        has_delimiter = values.str.contains(self._delimiter, literal=True)
        wants_quotes = (has_delimiter | values.str.contains(r'["\r\n]|^\s|\s$')).fill_null(value=False)
        if not wants_quotes.any():
            return values.fill_null("")
        quoted = '"' + values.str.replace_all('"', '""', literal=True) + '"'
        return quoted.zip_with(wants_quotes, values).fill_null("")


def delimited_reader(config: SideConfig, _store: SchemaStore) -> Reader:
    _check(config)
    return DelimitedReader(config)


def delimited_writer(config: SideConfig, _store: SchemaStore) -> Writer:
    _check(config)
    return DelimitedWriter(config)


def _check(config: SideConfig) -> None:
    nested = next((name for name, declared in config.columns.items() if declared.is_nested), None)
    if nested is not None:
        raise FormatInvalid(f"delimited holds no {config.columns[nested]} (column {nested!r}); write json or avro")
    if not len(config.columns):
        raise FormatInvalid(f"delimited needs columns, and the {config.side} has none")

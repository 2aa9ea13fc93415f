"""JSON records: arrays of objects and newline-delimited objects, parsed into raw frames for ``canonicalise``.

Lines of one layout are read by ``json_layout``. Other chunks are read whole with Arrow's strict JSON reader, which refuses a
number where a string is declared and keeps 64-bit integers and decimals exact. A refused chunk is cut into smaller pieces, which
``json.loads`` reads again piece by piece, because it can name each record's fault.
"""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
from pyarrow import json as arrow_json

from engine.errors import UserError
from engine.expressions.types.types import Schema
from engine.formats.json.json_layout import Unknown, read_layout
from engine.formats.json.json_reading import JsonReader
from engine.formats.json.json_values import TypeMismatch, conform_values, find_mismatches, is_unicode
from engine.frames.byte_texts import is_utf8
from engine.plan.model import RelationSchema
from engine.records.arrow_bounds import MAX_VALUES
from engine.records.canonical import CONTROL_COLUMNS, FAR_YEAR, OUT_OF_RANGE, cast_columns, empty_rejects, expected, reject_rows
from engine.records.excerpts import excerpt_of

PIECE_LINES = 512
"""Lines of a piece: small enough that one bad record in a chunk costs only a millisecond or two."""

FEW_LINES = 24
"""Up to this number of lines ``json.loads`` is faster than starting Arrow's reader."""

FEW_ALIKE = 128
"""Up to this number of lines Arrow's reader is as fast as some hundred steps over short arrays."""

_NO_NUMBER = re.compile(rb"[:,\[][ \t]*-?(?:NaN|Inf)")
_NEWLINE, _RETURN, _BRACE, _CLOSING_BRACE = 10, 13, ord("{"), ord("}")
_BOM = b"\xef\xbb\xbf"
Lines = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]


class BodyMalformed(UserError):
    """A whole body cannot be read, so its records cannot be separated.

    Attributes:
        position: byte or character where reading stopped, None if the format does not say.
    """

    code = "malformed_json"

    def __init__(self, detail: str, position: int | None = None) -> None:
        super().__init__(detail)
        self.position = position


def check_width(records: int, relation: RelationSchema) -> None:
    """Refuse many records of a wide relation in one body: in memory each of them has all columns, even those that it leaves out.

    Raises:
        BodyMalformed: they are too many.
    """
    places = relation.columns.places
    if records * places > MAX_VALUES:
        raise BodyMalformed(
            f"the body has {records:,} records of {places:,} values each, and may have {MAX_VALUES:,} values: columns that a record leaves "
            "out count too; send it in several parts"
        )


def parse_array(body: bytes, relation: RelationSchema) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Parse a JSON array of records, or a single record, into ``(raw, rejects)``; ``_offset`` is the index.

    Raises:
        BodyMalformed: it is not JSON, or neither an array nor an object, or too much.
    """
    try:
        value = JsonReader(relation.columns.types).read(body)
    except json.JSONDecodeError as error:
        raise BodyMalformed(f"{error.msg} at line {error.lineno}, column {error.colno}", error.pos) from error
    except UnicodeDecodeError as error:
        raise BodyMalformed("the body is not UTF-8", error.start) from error
    except ValueError as error:
        raise BodyMalformed(str(error)[:200]) from error
    except RecursionError as error:
        raise BodyMalformed("it is nested too deeply") from error
    records = [value] if isinstance(value, dict) else value
    if not isinstance(records, list):
        raise BodyMalformed("the body must be an array of records, one record, or records on lines of their own", 0)
    check_width(len(records), relation)
    return parse_objects(records, np.arange(len(records), dtype=np.int64), relation, "reject")


def parse_lines(
    chunk: bytes, relation: RelationSchema, unknown: Unknown, member: pl.Expr | None = None, bounds: Lines | None = None
) -> tuple[pl.DataFrame, pl.DataFrame, npt.NDArray[np.int64]]:
    """Parse newline-delimited records.

    Args:
        chunk: whole lines; the last may lack its newline. Empty lines are skipped.
        relation: names and types.
        unknown: whether an undeclared column refuses its record (posted records) or is ignored (files).
        member: see ``canonicalise``; a line that is no object belongs to no relation and is still refused.
        bounds: its ``line_bounds``, if they are known.

    Returns:
        ``(raw, rejects, starts)``: offsets are indexes of lines (empty ones do not count), ``starts[index]`` is its first byte.
    """
    starts, ends = line_bounds(chunk) if bounds is None else bounds
    if len(starts) == 0:
        return pl.DataFrame(), empty_rejects(), starts
    raw = _read_fast(chunk, starts, ends, relation, unknown) if len(starts) > FEW_LINES else None
    if raw is not None:
        return raw.with_columns(pl.int_range(len(starts), dtype=pl.Int64).alias("_offset")), empty_rejects(), starts
    frames: list[pl.DataFrame] = []
    rejects: list[pl.DataFrame] = []
    for first in range(0, len(starts), PIECE_LINES):
        last = min(first + PIECE_LINES, len(starts))
        piece = chunk[starts[first] : ends[last - 1]]
        places, stops = starts[first:last] - starts[first], ends[first:last] - starts[first]
        frame = _read_fast(piece, places, stops, relation, unknown) if last - first > FEW_LINES else None
        if frame is not None:
            frames.append(frame.with_columns(pl.int_range(first, last, dtype=pl.Int64).alias("_offset")))
            continue
        lines = [chunk[starts[i] : ends[i]] for i in range(first, last)]
        frame, refused = _read_slowly(lines, first, relation, unknown, member)
        frames.append(frame)
        rejects.append(refused)
    stacked, unsettled = _stack(frames, relation, member)
    return stacked, pl.concat([*rejects, *unsettled]) if rejects or unsettled else empty_rejects(), starts


def line_bounds(chunk: bytes) -> Lines:
    """Return where each non-empty line starts and ends (newline excluded), after a byte order mark."""
    newlines = np.flatnonzero(np.frombuffer(chunk, dtype=np.uint8) == _NEWLINE)
    return non_empty(chunk, np.concatenate(([0], newlines + 1)), np.concatenate((newlines, [len(chunk)])))


def non_empty(chunk: bytes, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> Lines:
    """Leave out empty lines and a byte order mark."""
    if chunk.startswith(_BOM):
        starts[0] = len(_BOM)
    lengths = ends - starts
    if lengths.min() > 1:
        return starts, ends
    kept = lengths > 1
    short = np.flatnonzero(lengths == 1)
    kept[short] = np.frombuffer(chunk, dtype=np.uint8)[starts[short]] != _RETURN
    return starts[kept], ends[kept]


def parse_objects(
    records: list[Any],
    offsets: npt.NDArray[np.int64],
    relation: RelationSchema,
    unknown: Unknown,
    member: pl.Expr | None = None,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Convert parsed JSON values to a raw frame of declared types; return ``(raw, rejects)``."""
    refused: dict[int, tuple[str, str]] = {}
    if set(map(type, records)) - {dict}:
        for index, record in enumerate(records):
            if not isinstance(record, dict):
                refused[index] = ("not_an_object", "a record is a JSON object")
        records = [record if isinstance(record, dict) else {} for record in records]
    if unknown == "reject":
        _refuse_unknown(records, relation, refused)
    columns = [_column(name, relation, records, refused) for name in relation.columns.names]
    columns += [_control(name, records, refused) for name in CONTROL_COLUMNS if any(name in record for record in records)]
    raw = pl.DataFrame([*columns, pl.Series("_offset", offsets, dtype=pl.Int64)])
    if not refused:
        return raw, empty_rejects()
    if member is not None:
        belongs = raw.select(member.fill_null(value=False)).to_series()
        refused = {i: why for i, why in refused.items() if belongs[i] or why[0] == "not_an_object"}
    rows = [(int(offsets[i]), *refused[i], excerpt_of(records[i])) for i in sorted(refused)]
    kept = np.ones(len(records), dtype=bool)
    kept[list(refused)] = False
    return raw.filter(pl.Series(kept)), reject_rows(rows)


def _refuse_unknown(records: list[dict[str, Any]], relation: RelationSchema, refused: dict[int, tuple[str, str]]) -> None:
    known = {*relation.columns.names, *CONTROL_COLUMNS}
    if not set().union(*records) - known:
        return
    for index, record in enumerate(records):
        strange = next((name for name in record if name not in known), None)
        if strange is not None and index not in refused:
            refused[index] = ("unknown_column", unknown_detail(strange, relation))


def unknown_detail(name: str, relation: RelationSchema) -> str:
    """Name the undeclared column and the declared ones, and point out a difference only in case, as with names of SQL."""
    names = relation.columns.names
    meant = next((f"; did you mean {each}?" for each in names if each.lower() == name.lower()), "")
    return f"column {name!r} is not declared; {relation.name} has {', '.join(names)}{meant}"


def _column(name: str, relation: RelationSchema, records: list[dict[str, Any]], refused: dict[int, tuple[str, str]]) -> pl.Series:
    declared, is_event_time = relation.columns[name], name == relation.event_time
    series, bad = conform_values(name, [record.get(name) for record in records], declared)
    if bad is not None:
        new = [index for index in np.flatnonzero(bad.to_numpy()).tolist() if index not in refused]
        misfits = find_mismatches([records[index].get(name) for index in new], declared)
        refused |= {index: _why(name, misfit, is_event_time=is_event_time) for index, misfit in zip(new, misfits, strict=True)}
    return series


def _why(name: str, misfit: TypeMismatch, *, is_event_time: bool) -> tuple[str, str]:
    """Describe the fault of a value with a wrong type."""
    value, place = misfit.value, f"column {name + misfit.place!r}"
    if isinstance(value, str) and not is_unicode(value):
        return "invalid_string", f"{'a key of ' if misfit.is_key else ''}{place} holds half of a surrogate pair"
    if isinstance(value, float) and not math.isfinite(value):
        return "not_finite", f"{place} must be a finite number"
    if is_event_time and isinstance(value, str) and re.match(FAR_YEAR, value):
        return "event_time_out_of_range", OUT_OF_RANGE
    if misfit.field is not None:
        return "wrong_type", f"{place} must be {expected(misfit.declared)}, which has no field {misfit.field!r}"
    return "wrong_type", f"{place} must be {expected(misfit.declared)}, not {_json_type(value)}"


def _control(name: str, records: list[dict[str, Any]], refused: dict[int, tuple[str, str]]) -> pl.Series:
    kind = str if name == "$op" else int
    values = [record.get(name) for record in records]
    for index, value in enumerate(values):
        is_fit = isinstance(value, str) and is_unicode(value) if kind is str else type(value) is int and -(2**63) <= value < 2**63
        if value is not None and not is_fit:
            refused.setdefault(index, ("wrong_type", f"{name} must be {'a string' if kind is str else 'a whole number'}"))
            values[index] = None
    return pl.Series(name, values, dtype=CONTROL_COLUMNS[name])


def _json_type(value: Any) -> str:
    names = {str: "a string", bool: "a boolean", list: "an array", dict: "an object"}
    return names.get(type(value), "a number") + " of this size or form"


def _read_slowly(
    lines: list[bytes], first: int, relation: RelationSchema, unknown: Unknown, member: pl.Expr | None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    reader = JsonReader(relation.columns.types, known_names(relation) if unknown == "ignore" else None)
    together = _read_flat(lines, reader) if unknown == "reject" else None
    if together is not None:
        return parse_objects(together, np.arange(first, first + len(lines), dtype=np.int64), relation, unknown, member)
    records: list[Any] = []
    offsets: list[int] = []
    malformed: list[tuple[int, str, str, str]] = []
    for index, line in enumerate(lines, first):
        try:
            records.append(reader.read(line))
            offsets.append(index)
        except (ValueError, RecursionError) as error:
            if line.strip():
                malformed.append((index, "malformed_json", str(error), line[:1024].decode("utf-8", "replace")))
    raw, refused = parse_objects(records, np.array(offsets, dtype=np.int64), relation, unknown, member)
    return raw, pl.concat([reject_rows(malformed), refused]).sort("offset") if malformed else refused


def _read_flat(lines: list[bytes], reader: JsonReader) -> list[Any] | None:
    """Read flat objects, one a line, as one array; None if a line is anything else: each line is then read alone.

    All braces are at the ends of lines, so none is inside a line. No text continues over a line end, because JSON does not allow this. So
    each line is one object, and reading takes a third of the time.
    """
    text = b",\n".join(lines)
    if not text.count(b"{") == text.count(b"}") == len(lines) == text.count(b"},\n{") + 1 or text[:1] + text[-1:] != b"{}":
        return None
    try:
        records: list[Any] = reader.read(b"[" + text + b"]")
    except (ValueError, RecursionError):
        return None
    return records


def _read_fast(
    chunk: bytes, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], relation: RelationSchema, unknown: Unknown
) -> pl.DataFrame | None:
    """Read lines of one layout by it, others with Arrow; None if anything is unusual."""
    if len(starts) > FEW_ALIKE and (alike := read_layout(chunk, starts, ends, relation, unknown)) is not None:
        return alike
    chunk, starts, ends = chunk[starts[0] : ends[-1]], starts - starts[0], ends - starts[0]
    if not _are_objects(chunk, starts, ends) or (unknown == "ignore" and has_no_numbers(chunk)):
        return None
    schema = _arrow_schema(chunk, relation)
    if schema is None or not is_utf8(chunk):
        return None
    try:
        table = arrow_table(chunk, schema, unknown)
    except pa.ArrowException:
        return None
    if table.num_rows != len(starts):
        return None
    frame = cast("pl.DataFrame", pl.from_arrow(table, rechunk=False))
    return frame if are_decimals_fit(frame, relation.columns) else None


def _are_objects(chunk: bytes, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> bool:
    """Whether all lines begin and end with a brace.

    Arrow reads null as a record without values, and continues over line ends. From two objects on one line and one object on two lines it would
    make as many records as lines, each in the wrong place. No JSON text continues between the braces of two lines.
    """
    data = np.frombuffer(chunk, dtype=np.uint8)
    last = data[ends - 1]
    if (last == _RETURN).any():
        last = np.where(last == _RETURN, data[ends - 2], last)
    return bool((data[starts] == _BRACE).all() and (last == _CLOSING_BRACE).all())


def has_no_numbers(chunk: bytes) -> bool:
    """Whether a text may have NaN or an infinity, which Arrow reads as numbers, even in undeclared fields."""
    return (b"NaN" in chunk or b"Inf" in chunk) and _NO_NUMBER.search(chunk) is not None


def known_names(relation: RelationSchema) -> frozenset[str]:
    """Return the names of a record's fields that are read."""
    return frozenset((*relation.columns.names, *CONTROL_COLUMNS))


def arrow_table(text: bytes, schema: pa.Schema, unknown: Unknown) -> pa.Table:
    """Read newline-separated objects with Arrow's reader, in this thread and as one block.

    Raises:
        ArrowException: one is no JSON, or does not fit the schema.
    """
    return arrow_json.read_json(
        pa.BufferReader(text),
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
        parse_options=arrow_json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="error" if unknown == "reject" else "ignore"
        ),
    )


def are_decimals_fit(frame: pl.DataFrame, columns: Schema) -> bool:
    """Whether all have at most the digits of their type: Arrow does not check whole numbers."""
    for name, declared in columns.items():
        if declared.kind == "decimal":
            greatest = cast("Decimal | None", frame[name].abs().max())
            if greatest is not None and greatest >= 10 ** ((declared.precision or 0) - (declared.scale or 0)):
                return False
    return True


ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int64(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.string(),
    "date": pa.string(),
    "time": pa.string(),
    "timestamp": pa.string(),
}
"""The column types for Arrow's JSON reader."""


def _arrow_schema(chunk: bytes, relation: RelationSchema) -> pa.Schema | None:
    """Choose each column's type from the first record; None = nested columns or an unusual start: read slowly."""
    try:
        first = json.loads(chunk[: None if (end := chunk.find(b"\n")) < 0 else end] or b"{}")
    except (ValueError, RecursionError):
        first = {}
    if not isinstance(first, dict):
        first = {}
    fields = []
    for name, declared in relation.columns.items():
        dtype = pa.decimal128(declared.precision, declared.scale) if declared.kind == "decimal" else ARROW.get(declared.kind)
        if dtype is None:
            return None
        value = first.get(name)
        if declared.kind == "bigint" and isinstance(value, str):
            dtype = pa.string()
        elif declared.kind == "timestamp" and type(value) is int:
            dtype = pa.int64()
        fields.append(pa.field(name, dtype))
    if b"$" in chunk or b"\\" in chunk:  # a name may contain escapes
        fields += [pa.field("$op", pa.string()), pa.field("$event_time_ms", pa.int64())]
    return pa.schema(fields)


def _stack(
    frames: list[pl.DataFrame], relation: RelationSchema, member: pl.Expr | None
) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    """Concatenate pieces. If their columns have different types, first convert all to the declared ones."""
    frames = [frame for frame in frames if frame.height]
    if len(frames) == 1:
        return frames[0], []
    if len({tuple(frame.schema.items()) for frame in frames}) <= 1:
        return (pl.concat(frames) if frames else pl.DataFrame()), []
    settled = [cast_columns(frame, relation, member) for frame in frames]
    return pl.concat([raw for raw, _ in settled], how="diagonal"), [rejects for _, rejects in settled if rejects.height]

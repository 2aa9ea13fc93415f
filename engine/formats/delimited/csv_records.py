"""CSV records (RFC 4180, with a header line), parsed into raw frames for ``canonicalise``."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
from polars.exceptions import PolarsError

from engine.formats.delimited.record_ends import BEFORE_OPENING, BEHIND_CLOSING, COMMA, NEWLINE, QUOTE, record_ends
from engine.formats.json.json_records import Lines, line_bounds, non_empty
from engine.frames.byte_texts import is_utf8
from engine.plan.model import RelationSchema
from engine.records.canonical import MAX_RECORD_BYTES, empty_rejects, reject_rows

_STRAY_QUOTE = "a quote inside a field, or one that is never closed: put the whole field into quotes and write its quotes twice"

_TYPED = ("boolean", "int", "bigint", "double", "string")
"""Kinds that Polars' CSV reader parses as ``conform`` would; the others are read as text first."""

csv.field_size_limit(1 << 30)


def record_bounds(chunk: bytes, bound: int = MAX_RECORD_BYTES) -> Lines:
    """Return where each non-empty record starts and ends, its line break excluded (``engine.formats.delimited.record_ends``)."""
    if b'"' not in chunk:
        return line_bounds(chunk)
    behind = np.concatenate(list(record_ends(lambda start, end: chunk[start:end], 0, len(chunk), is_csv=True, bound=bound)))
    ends = behind - (np.frombuffer(chunk, dtype=np.uint8)[behind - 1] == NEWLINE)
    return non_empty(chunk, np.concatenate(([0], behind[:-1])), ends)


def parse_header(line: bytes) -> list[str]:
    """Return the column names of a header line."""
    text = line.decode("utf-8-sig", "replace").strip("\r\n")
    return [name.strip() for name in next(csv.reader([text]), [])]


def parse_csv(
    chunk: bytes, header: Sequence[str], relation: RelationSchema, bounds: Lines | None = None
) -> tuple[pl.DataFrame, pl.DataFrame, npt.NDArray[np.int64]]:
    """Parse whole CSV records, without the header.

    A record's result does not depend on its neighbours, because the cuts of a file must not change results.

    Args:
        chunk: the last record may lack its line break.
        header: the file's column names.
        relation: names and types.
        bounds: its ``record_bounds``, if they are known.

    Returns:
        ``(raw, rejects, starts)``: offsets are indexes of records, ``starts[index]`` is the first byte. Columns that the relation
        lacks are ignored. A record with a wrong number of fields, with misplaced quotes or invalid UTF-8 is refused as
        ``malformed_csv``.
    """
    starts, ends = record_bounds(chunk) if bounds is None else bounds
    if len(starts) == 0:
        return pl.DataFrame(), empty_rejects(), starts
    faults = _faults(chunk, starts, ends, len(header))
    good = np.delete(np.arange(len(starts)), list(faults))
    text = chunk
    # Empty lines would be rows of nulls.
    if faults or (b'"' not in chunk and len(starts) != chunk.count(b"\n") + (not chunk.endswith(b"\n"))):
        text = b"\n".join(chunk[starts[index] : ends[index]] for index in good.tolist())
    frame = _read(text, len(good), header, relation, is_typed=True)
    if frame is None:
        pieces = [chunk[starts[index] : ends[index]] for index in good.tolist()]
        frame, unread = _read_text(pieces, header, relation)
        faults |= {int(good[place]): why for place, why in unread.items()}
        good = np.delete(good, list(unread))
    rows = [
        (index, "malformed_csv", why, chunk[starts[index] : ends[index]][:1024].decode("utf-8", "replace"))
        for index, why in sorted(faults.items())
    ]
    return pl.DataFrame([*frame.get_columns(), pl.Series("_offset", good, dtype=pl.Int64)]), reject_rows(rows), starts


def _faults(chunk: bytes, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], fields: int) -> dict[int, str]:
    """Return the faults of records with wrong separators or quotes, by index."""
    data = np.frombuffer(chunk, dtype=np.uint8)
    is_comma, is_quote = data == COMMA, data == QUOTE
    found: dict[int, str] = {}
    if is_quote.any():
        quotes = np.flatnonzero(is_quote)
        within = np.append(np.searchsorted(quotes, starts), len(quotes))
        unclosed = np.flatnonzero(np.diff(within) % 2)
        turning = is_quote.copy()
        turning[ends[unclosed[ends[unclosed] < len(data)]]] = True  # the next record begins outside of quotes
        is_inside = np.logical_xor.accumulate(turning)
        is_comma &= ~is_inside
        opening, closing = quotes[is_inside[quotes]], quotes[~is_inside[quotes]]
        may_open = (opening == 0) | BEFORE_OPENING[data[opening - 1]]
        may_close = (closing == len(data) - 1) | BEHIND_CLOSING[data[np.minimum(closing + 1, len(data) - 1)]]
        stray = np.searchsorted(starts, np.concatenate([opening[~may_open], closing[~may_close]]), side="right") - 1
        for index in np.unique(np.concatenate([stray, unclosed])).tolist():
            found[max(index, 0)] = _STRAY_QUOTE
    commas = np.flatnonzero(is_comma)
    counts = np.diff(np.append(np.searchsorted(commas, starts), len(commas))) + 1
    for index in np.flatnonzero(counts != fields).tolist():
        found.setdefault(index, f"{counts[index]} fields where the header has {fields}")
    return found


def _read(text: bytes, rows: int, header: Sequence[str], relation: RelationSchema, *, is_typed: bool) -> pl.DataFrame | None:
    """Read records that have the header's fields; None if the number of rows differs."""
    wanted = {header.index(name): name for name in relation.columns.names if name in header}
    schema: dict[str, pl.DataType] = {}
    for index in range(len(header)):
        declared = relation.columns[wanted[index]] if index in wanted else None
        schema[f"c{index}"] = declared.polars if is_typed and declared is not None and declared.kind in _TYPED else pl.String()
    if not wanted or not rows:
        return pl.DataFrame(schema={name: schema[f"c{index}"] for index, name in wanted.items()})
    try:
        frame = pl.read_csv(io.BytesIO(text), has_header=False, schema=schema, columns=sorted(wanted))
    except PolarsError:
        return None
    return frame.rename({f"c{index}": name for index, name in wanted.items()}) if frame.height == rows else None


def _read_text(records: Sequence[bytes], header: Sequence[str], relation: RelationSchema) -> tuple[pl.DataFrame, dict[int, str]]:
    """Read records as text. Bisecting finds unreadable ones; return the others' rows, and the faults by place."""
    frame = _read(b"\n".join(records), len(records), header, relation, is_typed=False)
    if frame is not None:
        return frame, {}
    if len(records) == 1:
        nothing = pl.DataFrame(schema={name: pl.String() for name in relation.columns.names if name in header})
        return nothing, {0: "not a CSV record" if is_utf8(records[0]) else "not UTF-8"}
    half = len(records) // 2
    (first, of_first), (second, of_second) = (_read_text(part, header, relation) for part in (records[:half], records[half:]))
    return pl.concat([first.select(second.columns), second]), of_first | {half + place: why for place, why in of_second.items()}

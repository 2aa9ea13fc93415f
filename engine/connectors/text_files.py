"""Cutting text files (ndjson, csv) into chunks on record boundaries, and looking at samples of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from engine.connectors.csv_records import parse_csv, parse_header, record_bounds
from engine.connectors.json_records import Lines, line_bounds, parse_lines
from engine.errors import SourceUnavailable
from engine.plan.model import RelationSchema

SAMPLE_BYTES = 2_048
"""Enough for a dozen records at either end of a chunk; a longer record is read whole."""

_STEP_BYTES = 1 << 16


def read_range(path: Path, start: int, end: int) -> bytes:
    """Return the bytes ``[start, end)``.

    Raises:
        SourceUnavailable: the file is gone or shorter than it was.
    """
    try:
        with path.open("rb") as file:
            file.seek(start)
            data = file.read(end - start)
    except OSError as error:
        raise SourceUnavailable(f"file {path} cannot be read: {error.strerror}") from error
    if len(data) < end - start:
        raise SourceUnavailable(f"file {path} ends at byte {start + len(data)}; it had {end} when it was discovered")
    return data


def header_end(path: Path, end: int) -> int:
    """Return the byte behind a CSV file's header line."""
    return _line_end(path, 0, end)


def read_header(path: Path, end: int) -> list[str]:
    """Return the column names of a CSV file."""
    return parse_header(read_range(path, 0, header_end(path, end)))


def cut(path: Path, start: int, end: int, step: int, is_csv: bool) -> Iterator[tuple[int, int]]:
    """Yield ``(start, end)`` of consecutive parts of about ``step`` bytes that end where a record ends."""
    while start < end:
        stop = end if end - start <= step else _boundary(path, start, start + step, end, is_csv)
        yield start, stop
        start = stop


def _boundary(path: Path, start: int, near: int, end: int, is_csv: bool) -> int:
    """Return the first record boundary at or behind ``near``. In CSV a line break inside quotes is none: quotes are counted."""
    stop = _line_end(path, near - 1, end)
    while is_csv and stop < end and read_range(path, start, stop).count(b'"') % 2:
        stop = _line_end(path, stop, end)
    return stop


def _line_end(path: Path, start: int, end: int) -> int:
    """Return the byte behind the first line break at or behind ``start``, or ``end``."""
    while start < end:
        stop = min(start + _STEP_BYTES, end)
        newline = read_range(path, start, stop).find(b"\n")
        if newline >= 0:
            return start + newline + 1
        start = stop
    return end


def sample(path: Path, start: int, end: int, is_csv: bool) -> tuple[bytes, bytes]:
    """Return some whole records from the beginning of ``[start, end)`` and some from its end."""
    if end - start <= 2 * SAMPLE_BYTES:
        data = read_range(path, start, end)
        return data, data
    first = read_range(path, start, _boundary(path, start, start + SAMPLE_BYTES, end, is_csv))
    behind = _line_end(path, end - SAMPLE_BYTES, end)
    last = read_range(path, behind if behind < end else start, end)
    return first, last


def parse_text(
    data: bytes,
    header: Sequence[str] | None,
    relation: RelationSchema,
    member: pl.Expr | None,
    base: int,
    bounds: Lines | None = None,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Parse whole records; offsets are ``base`` plus the record's first byte. ``header`` is None for ndjson, for which ``bounds`` count."""
    if header is None:
        raw, rejects, starts = parse_lines(data, relation, "ignore", member, bounds)
    else:
        raw, rejects, starts = parse_csv(data, header, relation)
    places = pl.Series("places", starts, dtype=pl.Int64) + base
    if raw.height:
        raw = raw.with_columns(places.gather(raw["_offset"]).alias("_offset"))
    if rejects.height:
        rejects = rejects.with_columns(places.gather(rejects["offset"]).alias("offset"))
    return raw, rejects


def count_records(data: bytes, is_csv: bool) -> int:
    """Return how many records whole lines hold, good or bad."""
    return len((record_bounds(data) if is_csv else line_bounds(data))[0])

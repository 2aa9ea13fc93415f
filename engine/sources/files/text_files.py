"""Text files (ndjson, csv): cut on record boundaries, sampled, parsed and dated."""

from __future__ import annotations

import csv
import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from engine.errors import SourceUnavailable
from engine.formats.delimited.csv_records import parse_csv, parse_header, record_bounds
from engine.formats.delimited.record_ends import Holed, line_end, record_ends
from engine.formats.json.json_records import Lines, line_bounds, parse_lines
from engine.plan.model import RelationSchema
from engine.records.canonical import MAX_RECORD_BYTES, reject_rows
from engine.records.excerpts import MAX_EXCERPT_CHARS
from engine.sources.dating import Dated, date_frame, dating_relations

SAMPLE_BYTES = 2_048
"""Enough for a dozen records; a longer record is read whole."""

Header = tuple[str, ...]


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


@dataclass(frozen=True, slots=True)
class FileBytes(Holed):
    """The bytes of a file; parts of a sparse file that were never written are not read."""

    path: Path

    def __call__(self, start: int, end: int) -> bytes:
        return read_range(self.path, start, end)

    def behind_hole(self, at: int, end: int) -> int:
        """See ``Holed``. If the file system does not know its holes, there is none.

        Raises:
            SourceUnavailable: the file is gone.
        """
        try:
            descriptor = os.open(self.path, os.O_RDONLY)
            try:
                return min(os.lseek(descriptor, at, os.SEEK_DATA), end)
            finally:
                os.close(descriptor)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                return end
            if error.errno == errno.EINVAL:
                return at
            raise SourceUnavailable(f"file {self.path} cannot be read: {error.strerror}") from error


def read_header(path: Path, end: int) -> tuple[Header, int]:
    """Return the column names of a CSV file, and the byte after the header line.

    A first line that is no header (longer than a record may be, or in lines that end with carriage returns alone) names no
    columns and ends at 0. It is refused like a record, and so are all records after it.
    """
    bound = min(end, MAX_RECORD_BYTES)
    behind = line_end(FileBytes(path), 0, bound) or (end if end == bound else 0)
    try:
        return tuple(parse_header(read_range(path, 0, behind))), behind
    except csv.Error:
        return (), 0


def cut(path: Path, start: int, end: int, step: int, *, is_csv: bool, bound: int = MAX_RECORD_BYTES) -> Iterator[tuple[int, int]]:
    """Yield ``(start, end)`` of consecutive parts of about ``step`` bytes that end where a record ends."""
    if not is_csv:
        while start < end:
            stop = end if end - start <= step else line_end(FileBytes(path), start + step - 1, end) or end
            yield start, stop
            start = stop
        return
    for ends in record_ends(FileBytes(path), start, end, is_csv=True, bound=bound):
        while end - start > step and len(ends) and ends[-1] >= start + step:
            stop = int(ends[np.searchsorted(ends, start + step)])
            yield start, stop
            start = stop
        if end - start <= step:
            break
    if start < end:
        yield start, end


class Run(NamedTuple):
    """Whole consecutive records, or one that is too long to read."""

    start: int
    end: int
    is_too_long: bool


def runs(path: Path, start: int, end: int, *, is_csv: bool, bound: int = MAX_RECORD_BYTES) -> Iterator[Run]:
    """Cut whole records into runs of at most twice ``bound`` bytes; each record longer than ``bound`` is a run by itself."""
    if end - start <= bound:
        if start < end:
            yield Run(start, end, is_too_long=False)
        return
    last = start  # of the records after start
    for ends in record_ends(FileBytes(path), start, end, is_csv=is_csv, bound=bound):
        if not len(ends):
            continue
        begins = np.concatenate(([last], ends[:-1]))
        for index in np.flatnonzero(ends - begins > bound).tolist():
            if start < begins[index]:
                yield Run(start, int(begins[index]), is_too_long=False)
            yield Run(int(begins[index]), int(ends[index]), is_too_long=True)
            start = int(ends[index])
        last = int(ends[-1])
        if last - start >= bound:
            yield Run(start, last, is_too_long=False)
            start = last
    if start < last:
        yield Run(start, last, is_too_long=False)


def refuse_too_long(path: Path, run: Run, offset: int, bound: int = MAX_RECORD_BYTES) -> pl.DataFrame:
    """Return the reject of a record that is too long."""
    detail = f"a record of {run.end - run.start} bytes, more than {bound}: end each record with a line feed and close its quotes"
    excerpt = read_range(path, run.start, min(run.end, run.start + MAX_EXCERPT_CHARS)).decode("utf-8", "replace")
    return reject_rows([(offset, "record_too_long", detail, excerpt)])


def sample(path: Path, start: int, end: int, *, is_csv: bool) -> bytes:
    """Return some whole records from the beginning of ``[start, end)``; none if the first is too long."""
    near, last = start + SAMPLE_BYTES, start
    for ends in record_ends(FileBytes(path), start, min(end, near + MAX_RECORD_BYTES), is_csv=is_csv):
        if len(ends) and ends[-1] >= near:
            index = int(np.searchsorted(ends, near))
            before, found = (last if index == 0 else int(ends[index - 1])), int(ends[index])
            return read_range(path, start, found if found - before <= MAX_RECORD_BYTES else before)
        last = int(ends[-1]) if len(ends) else last
    return read_range(path, start, last)


def parse_text(
    data: bytes,
    header: Sequence[str] | None,
    relation: RelationSchema,
    member: pl.Expr | None,
    base: int,
    bounds: Lines | None = None,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Parse whole records; offsets are ``base`` plus the record's first byte. ``header`` is None for ndjson."""
    if header is None:
        raw, rejects, starts = parse_lines(data, relation, "ignore", member, bounds)
    else:
        raw, rejects, starts = parse_csv(data, header, relation, bounds)
    places = pl.Series("places", starts, dtype=pl.Int64) + base
    if raw.height:
        raw = raw.with_columns(places.gather(raw["_offset"]).alias("_offset"))
    if rejects.height:
        rejects = rejects.with_columns(places.gather(rejects["offset"]).alias("offset"))
    return raw, rejects


def bounds_of(data: bytes, *, is_csv: bool, bound: int = MAX_RECORD_BYTES) -> Lines:
    """Return where the records of whole lines start and end, good or bad."""
    return record_bounds(data, bound) if is_csv else line_bounds(data)


def date_text(
    data: bytes, header: Header | None, base: int, relations: Sequence[RelationSchema], now_ms: int, bounds: Lines | None = None
) -> Dated:
    """Date the records of whole lines: these times move a partition's head (``engine.operators.tasks.order``).

    Every record with a good event time counts, even if other fields are bad. So the planner, which reads only event times, and the
    workers, which validate whole records, see the same heads. A record that several relations date has the latest time.

    Args:
        data: without a CSV's header.
        header: a CSV file's column names, None for ndjson.
        base: offset of the first byte.
        relations: whose records they may be.
        now_ms: the wall clock: records too far ahead of it have no time (T7).
        bounds: the places of the records, if they are known.
    """
    found = []
    for relation in dating_relations(relations):
        raw, _ = parse_text(data, header, relation, None, base, bounds)
        found.append(date_frame(raw, relation, now_ms, is_text=header is not None))
    return Dated.joined(found)

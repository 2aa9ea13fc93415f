"""Split appended records into the bodies of requests: frames as Arrow IPC streams, everything else as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from slackwater.errors import Fault, Json, RecordsRejected
from slackwater.frames import FRAME_FILES, csv_rows, file_frame, frame_batches, is_frame
from slackwater.parameters import json_text
from slackwater.transport.requests import ARROW_TYPE, NDJSON_TYPE

BATCH_ROWS: Final = 5_000
FRAME_ROWS: Final = 50_000
BATCH_BYTES: Final = 8 * 1024 * 1024
"""Size at which a body of lines ends, after the current line."""

_LINE_FILES: Final = frozenset({".ndjson", ".jsonl"})


@dataclass(frozen=True, slots=True)
class Batch:
    """Records of one request.

    Attributes:
        first: index of its first record among all appended ones, from 0.
    """

    body: bytes
    media_type: str
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """A record that was rejected. It is stored; ``rejects()`` reads it.

    Attributes:
        index: its index among all appended records, from 0.
    """

    index: int
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Appended:
    """The result of an append.

    Attributes:
        count: appended records; they are durable.
        offsets: of each batch: partition, first and last offset, count.
        rejected: these, each with its index and reason; of each batch at most the first thousand.
        older_count: for change events: events left out, because a newer one of their key came before.
        warnings: possible surprises of the appended records.
    """

    count: int = 0
    offsets: tuple[Json, ...] = ()
    rejected_count: int = 0
    rejected: tuple[Rejected, ...] = ()
    older_count: int = 0
    warnings: tuple[Json, ...] = ()
    batches: int = 0

    def with_answer(self, batch: Batch, answer: Mapping[str, Any]) -> Appended:
        """Return the result with the answer to one more batch."""
        refused = (Rejected(batch.first + each["index"], each["code"], each["detail"]) for each in answer["rejected"])
        news = [warning for warning in answer["warnings"] if warning not in self.warnings]
        return Appended(
            self.count + answer["appended"],
            (*self.offsets, *answer["offsets"]),
            self.rejected_count + answer["rejected_count"],
            (*self.rejected, *refused),
            self.older_count + answer["older_count"],
            (*self.warnings, *news),
            self.batches + 1,
        )

    def with_refusal(self, batch: Batch, error: RecordsRejected) -> Appended:
        """Return the result with one more batch whose records were all rejected."""
        refused = (_rejected(batch.first, fault) for fault in error.errors)
        rejected_count = self.rejected_count + batch.count
        return replace(self, rejected_count=rejected_count, rejected=(*self.rejected, *refused), batches=self.batches + 1)

    @property
    def position(self) -> dict[int, int]:
        """Partition → the offset after the last record, for ``min_position``."""
        found: dict[int, int] = {}
        for part in self.offsets:
            found[part["partition"]] = max(found.get(part["partition"], 0), part["last_offset"] + 1)
        return found

    def _repr_html_(self) -> str:
        from slackwater.displays.tables import SHOWN_ROWS, table

        head = f"{self.count:,} appended, {self.rejected_count:,} refused"
        rows = [(each.index, each.code, each.detail) for each in self.rejected[:SHOWN_ROWS]]
        return table(head, ("index", "code", "detail"), rows)


def _rejected(first: int, fault: Fault) -> Rejected:
    return Rejected(first + int(fault.pointer.removeprefix("/").partition("/")[0]), fault.code, fault.detail)


def batches(source: Any, columns: Mapping[str, str] | None, max_rows: int | None = None) -> Iterator[Batch]:
    """Split records into batches.

    Args:
        source: a frame (pyarrow, Polars, pandas); an iterable of mappings; one mapping; lines of JSON as bytes; or the path of a file:
            ``.ndjson``, ``.jsonl``, ``.json``, ``.csv``, ``.parquet``, ``.arrow``, ``.feather``, ``.ipc``.
        columns: of the relation; only used for CSV.
        max_rows: of a batch; None: 5,000 for lines, 50,000 for a frame.

    Raises:
        TypeError: it is none of these.
        ValueError: a file of another kind.
    """
    if max_rows is not None and max_rows < 1:
        raise ValueError(f"a batch has at least one record, not {max_rows}")
    if isinstance(source, str | Path):
        yield from _file_batches(Path(source), columns, max_rows)
    elif is_frame(source):
        yield from _frame_batches(source, max_rows)
    elif isinstance(source, bytes):
        yield from _line_batches(iter(source.splitlines(keepends=True)), max_rows)
    elif isinstance(source, Mapping):
        yield from _line_batches(iter([_line(source)]), max_rows)
    elif isinstance(source, Iterable):
        yield from _line_batches(map(_line, source), max_rows)
    else:
        raise TypeError(f"a {type(source).__name__} cannot be appended: give a frame, mappings, lines of JSON, or a path")


def needs_columns(source: Any) -> bool:
    """Return whether ``batches`` needs the relation's columns."""
    return isinstance(source, str | Path) and Path(source).suffix.lower() == ".csv"


def _file_batches(path: Path, columns: Mapping[str, str] | None, max_rows: int | None) -> Iterator[Batch]:
    kind = path.suffix.lower()
    if kind == ".csv":
        yield from _csv_batches(path, columns, max_rows)
    elif kind in FRAME_FILES:
        yield from _frame_batches(file_frame(path, columns), max_rows)
    elif kind in _LINE_FILES:
        with path.open("rb") as lines:
            yield from _line_batches(iter(lines), max_rows)
    elif kind == ".json":
        found = json.loads(path.read_bytes())
        yield from _line_batches(map(_line, [found] if isinstance(found, dict) else found), max_rows)
    else:
        known = ", ".join(sorted({*FRAME_FILES, *_LINE_FILES, ".json"}))
        raise ValueError(f"{path.name}: its name does not say what is in it; known are {known}")


def _csv_batches(path: Path, columns: Mapping[str, str] | None, max_rows: int | None) -> Iterator[Batch]:
    """Split a CSV file into frames; from the first value of a wrong type on, into lines, so that the service rejects only its record."""
    first = 0
    try:
        for batch in _frame_batches(file_frame(path, columns), max_rows):
            yield batch
            first = batch.first + batch.count
    except (ValueError, NotImplementedError):  # Arrow's errors of conversion; the text of what is no CSV at all is refused below
        yield from _line_batches(map(_line, csv_rows(path, columns, first)), max_rows, first)


def _frame_batches(frame: Any, max_rows: int | None) -> Iterator[Batch]:
    first = 0
    for body, count in frame_batches(frame, max_rows or FRAME_ROWS):
        yield Batch(body, ARROW_TYPE, first, count)
        first += count


def _line_batches(lines: Iterator[bytes], max_rows: int | None, first: int = 0) -> Iterator[Batch]:
    most = max_rows or BATCH_ROWS
    held: list[bytes] = []
    size = 0
    for line in lines:
        if not line.strip():
            continue
        held.append(line if line.endswith(b"\n") else line + b"\n")
        size += len(line)
        if len(held) == most or size >= BATCH_BYTES:
            yield Batch(b"".join(held), NDJSON_TYPE, first, len(held))
            first, held, size = first + len(held), [], 0
    if held:
        yield Batch(b"".join(held), NDJSON_TYPE, first, len(held))


def _line(record: Any) -> bytes:
    if not isinstance(record, Mapping):
        raise TypeError(f"a record is a mapping of columns, not a {type(record).__name__}: {record!r}")
    return json_text(record).encode() + b"\n"

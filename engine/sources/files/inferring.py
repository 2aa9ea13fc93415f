"""The columns of a directory's files: from the newest files' schemas (Parquet), or from records at places all over the files."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa

from engine.definition.sources.files import FilesPlace
from engine.errors import DefinitionInvalid, FileUnfit, SourceUnavailable
from engine.expressions.types.types import BIGINT, BOOLEAN, BYTES, DATE, DOUBLE, INT, STRING, TIME, TIMESTAMP, ColumnType, decimal
from engine.formats.json.json_shapes import Unlike, fields_of
from engine.records.canonical import CONTROL_COLUMNS
from engine.records.inferred import Fields, Inferred, nothing_found, proposed
from engine.sources.files.parquet_files import open_parquet
from engine.sources.files.registry import is_compressed, list_files
from engine.sources.files.text_files import read_header, read_range, sample

T = TypeVar("T")

FILES: Final = 16
PLACES: Final = 16
PIECE_BYTES: Final = 65_536
"""Bytes at each place of each newest file: 16 MiB in all. A file not longer than its places is read whole."""

Files = Sequence[tuple[Path, int]]
"""Paths and sizes in bytes, the newest first."""

_NUMBERS: Final = (INT, BIGINT, DOUBLE)
"""Each type holds the values of those before it."""

_WHOLE: Final = re.compile(r"-?(0|[1-9]\d{0,17})")
"""Whole numbers without leading zeros, which a number would lose: 007 is a text."""

_NUMBER: Final = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d{1,3})?")
_ARROW: Final[tuple[tuple[Callable[[pa.DataType], bool], ColumnType], ...]] = (
    (pa.types.is_boolean, BOOLEAN),
    (lambda kind: pa.types.is_integer(kind) and (kind.bit_width < 32 or kind == pa.int32()), INT),
    (pa.types.is_integer, BIGINT),
    (pa.types.is_floating, DOUBLE),
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind), STRING),
    (
        lambda kind: (
            pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
            or pa.types.is_fixed_size_binary(kind)
        ),
        BYTES,
    ),
    (pa.types.is_date, DATE),
    (pa.types.is_time, TIME),
    (pa.types.is_timestamp, TIMESTAMP),
)  # fmt: skip


def infer(place: FilesPlace, key: Sequence[str]) -> Inferred:
    """Propose columns.

    Args:
        place: a directory that may be read, and the format of its files.
        key: as the definition has it.

    Raises:
        DefinitionInvalid: the directory holds no records, or a compressed file.
        SourceUnavailable: it cannot be read.
    """
    directory = Path(place.path)
    files = {name: listed for name, listed in list_files(directory).items() if listed.size}
    if not files:
        raise nothing_found(f"the directory {place.path} holds no file with records")
    newest_first = sorted(files, key=lambda name: (files[name].changed_at, name), reverse=True)
    for name in newest_first:
        if place.format != "parquet" and is_compressed(name):
            raise nothing_found(f"the file {name} is compressed, which is not read")
    looked_at = [(directory / name, files[name].size) for name in newest_first[:FILES]]
    found = proposed(_BY_FORMAT[place.format](looked_at), key)
    return replace(found, seen=_sample_note(looked_at, len(files), place.format))


def _sample_note(files: Files, there: int, form: str) -> str | None:
    """Return a sentence on how much was examined; None: everything."""
    is_cut = form != "parquet" and any(size > PLACES * PIECE_BYTES for _, size in files)
    if len(files) == there and not is_cut:
        return None
    parts = f"{PLACES} places of {PIECE_BYTES // 1024} KiB in each of " if is_cut else ""
    return f"{parts}the {len(files)} newest of {there} files" if len(files) < there else f"{parts}{there} files"


def arrow_column(kind: pa.DataType) -> ColumnType | None:
    """Return the column type that holds an Arrow type's values; None: no type does."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_dictionary(kind):
        return arrow_column(kind.value_type)
    if pa.types.is_decimal(kind):
        return decimal(kind.precision, kind.scale) if kind.precision <= 38 and 0 <= kind.scale <= kind.precision else None
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        element = arrow_column(kind.value_type)
        return None if element is None else ColumnType("array", element=element)
    if pa.types.is_map(kind):
        value = arrow_column(kind.item_type)
        return None if value is None or arrow_column(kind.key_type) != STRING else ColumnType("map", key=STRING, value=value)
    if pa.types.is_struct(kind):
        fields = [(field.name, arrow_column(field.type)) for field in (kind.field(place) for place in range(kind.num_fields))]
        held = tuple((name, declared) for name, declared in fields if declared is not None)
        return ColumnType("struct", fields=held) if held else None
    return next((declared for fits, declared in _ARROW if fits(kind)), None)


def _parquet(files: Files) -> Fields:
    found: dict[str, ColumnType | None] = {}
    for fields in _readable(files, lambda path, _: _parquet_fields(path)):
        for name, declared in fields:
            found[name] = _wider(found.get(name), declared)
    return list(found.items())


def _parquet_fields(path: Path) -> Fields:
    with open_parquet(path) as file:
        return [(field.name, arrow_column(field.type)) for field in file.schema_arrow if field.name not in CONTROL_COLUMNS]


def _wider(newer: ColumnType | None, older: ColumnType | None) -> ColumnType | None:
    """Return the type that holds numbers of both files; for other types the newer file's counts."""
    if newer is None or older is None:
        return newer or older
    types = [newer, older]
    if all(each in _NUMBERS for each in types):
        return max(types, key=_NUMBERS.index)
    return newer


def _readable(files: Files, read: Callable[[Path, int], T]) -> Iterator[T]:
    """Read files, the newest first; older files that cannot be read are skipped.

    Raises:
        FileUnfit, DefinitionInvalid, SourceUnavailable: the newest cannot be read.
    """
    for place, (path, size) in enumerate(files):
        try:
            yield read(path, size)
        except (FileUnfit, DefinitionInvalid, SourceUnavailable):
            if place == 0:
                raise


def _pieces(path: Path, start: int, end: int) -> Iterator[bytes]:
    """Yield whole lines of all of ``[start, end)``, or of evenly spaced places in it, the last at its end."""
    if end - start <= PLACES * PIECE_BYTES:
        yield read_range(path, start, end)
        return
    for place in range(PLACES):
        at = start + (end - start - PIECE_BYTES) * place // (PLACES - 1)
        text = read_range(path, at, at + PIECE_BYTES)
        first = 0 if place == 0 else text.find(b"\n") + 1
        last = len(text) if place == PLACES - 1 else text.rfind(b"\n") + 1
        if place == 0 and not last:
            yield sample(path, start, end, is_csv=False)
        elif place == 0 or first:
            yield text[first:last]


def _ndjson(files: Files) -> Fields:
    objects = [each for path, size in files for text in _pieces(path, 0, size) for each in _objects(text)]
    if not objects:
        raise nothing_found(f"the lines of {files[0][0]} hold no JSON object")
    try:
        return fields_of(objects)
    except Unlike as error:
        raise nothing_found(f"the records of {files[0][0].parent} do not agree: {error}") from error


def _objects(text: bytes) -> Iterator[dict[str, Any]]:
    for line in text.split(b"\n"):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield {name: each for name, each in value.items() if name not in CONTROL_COLUMNS}


def _csv(files: Files) -> Fields:
    columns: dict[str, list[str]] = {}
    for found in _readable(files, _csv_values):
        for name, values in found.items():
            columns.setdefault(name, []).extend(values)
    return [(name, _of_texts(values)) for name, values in columns.items() if name not in CONTROL_COLUMNS]


def _csv_values(path: Path, size: int) -> dict[str, list[str]]:
    """Return the values of a CSV file's columns. After the first place only texts without quotes count, because a record may span lines."""
    header, behind = read_header(path, size)
    texts = [sample(path, behind, size, is_csv=True), *(text for text in _pieces(path, behind, size) if b'"' not in text)]
    try:
        rows = [row for text in texts for row in csv.reader(io.StringIO(text.decode("utf-8", "replace"), newline=""))]
    except csv.Error as error:
        raise nothing_found(f"{path} is no CSV: {error}") from error
    return {name: [row[place] for row in rows if place < len(row) and row[place]] for place, name in enumerate(header)}


def _of_texts(values: list[str]) -> ColumnType:
    """Return the type of texts: numbers or booleans only if all texts are such."""
    if values and all(value in ("true", "false") for value in values):
        return BOOLEAN
    if values and all(map(_WHOLE.fullmatch, values)):
        return BIGINT
    return DOUBLE if values and all(map(_NUMBER.fullmatch, values)) else STRING


_BY_FORMAT: Final[Mapping[str, Callable[[Files], Fields]]] = {"parquet": _parquet, "ndjson": _ndjson, "csv": _csv}

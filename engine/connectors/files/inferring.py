"""Which columns a directory's files have: by the newest file, its schema (Parquet) or its first records."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from engine.connectors.canonical import CONTROL_COLUMNS
from engine.connectors.files.definition import FilesPlace
from engine.connectors.files.parquet_files import open_parquet
from engine.connectors.files.registry import list_files
from engine.connectors.files.text_files import read_header, sample
from engine.connectors.inferred import Fields, Inferred, nothing_found, proposed
from engine.connectors.json_shapes import Unlike, fields_of
from engine.definition.types import BIGINT, BOOLEAN, BYTES, DATE, DOUBLE, INT, STRING, TIME, TIMESTAMP, ColumnType, decimal
from engine.errors import SourceUnavailable

SEEN: Final = 1_000
"""Records that are looked at."""

_WHOLE: Final = re.compile(r"-?(0|[1-9]\d{0,17})")
"""Without zeros before it, which a number would lose: 007 is a text."""

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
        place: a directory that may be read, and how its files are written.
        key: as the definition has it.

    Raises:
        DefinitionInvalid: the directory holds no records.
        SourceUnavailable: it cannot be read.
    """
    directory = Path(place.path)
    files = {name: listed.size for name, listed in list_files(directory).items() if listed.size}
    if not files:
        raise nothing_found(f"the directory {place.path} holds no file with records")
    newest = max(files, key=lambda name: (_changed(directory / name), name))
    return proposed(_BY_FORMAT[place.format](directory / newest, files[newest]), key)


def arrow_column(kind: pa.DataType) -> ColumnType | None:
    """Return the column type that holds an Arrow type's values; None: none does."""
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


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError as error:
        raise SourceUnavailable(f"file {path} cannot be read: {error.strerror}") from error


def _parquet(path: Path, _size: int) -> Fields:
    with open_parquet(path) as file:
        return [(field.name, arrow_column(field.type)) for field in file.schema_arrow if field.name not in CONTROL_COLUMNS]


def _ndjson(path: Path, size: int) -> Fields:
    objects = []
    for line in sample(path, 0, size, is_csv=False).splitlines()[:SEEN]:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            objects.append({name: each for name, each in value.items() if name not in CONTROL_COLUMNS})
    if not objects:
        raise nothing_found(f"the first lines of {path} hold no JSON object")
    try:
        return fields_of(objects)
    except Unlike as error:
        raise nothing_found(f"the records of {path} do not agree: {error}") from error


def _csv(path: Path, size: int) -> Fields:
    header, behind = read_header(path, size)
    text = sample(path, behind, size, is_csv=True).decode("utf-8", "replace")
    try:
        rows = [row for row, _ in zip(csv.reader(io.StringIO(text, newline="")), range(SEEN), strict=False)]
    except csv.Error as error:
        raise nothing_found(f"{path} is no CSV: {error}") from error
    columns = {name: [row[place] for row in rows if place < len(row) and row[place]] for place, name in enumerate(header)}
    return [(name, _of_texts(values)) for name, values in columns.items() if name not in CONTROL_COLUMNS]


def _of_texts(values: list[str]) -> ColumnType:
    """Return what texts are: numbers or booleans only where all of them are written as such."""
    if values and all(value in ("true", "false") for value in values):
        return BOOLEAN
    if values and all(map(_WHOLE.fullmatch, values)):
        return BIGINT
    return DOUBLE if values and all(map(_NUMBER.fullmatch, values)) else STRING


_BY_FORMAT: Final[Mapping[str, Callable[[Path, int], Fields]]] = {"parquet": _parquet, "ndjson": _ndjson, "csv": _csv}

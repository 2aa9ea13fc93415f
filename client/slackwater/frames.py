"""Arrow, Polars and pandas, if installed: rows to frames, frames and files to Arrow.

pyarrow does the work; Polars and pandas convert its tables.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from slackwater.column_types import ColumnType, parse_type
from slackwater.errors import ExtraMissing

_EXTRAS: Final = {"pyarrow": "arrow", "polars": "polars", "pandas": "pandas"}


def library(name: str) -> Any:
    """Import pyarrow, Polars or pandas.

    Raises:
        ExtraMissing: it is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ExtraMissing(package, _EXTRAS[package]) from error


def arrow_of_stream(content: bytes) -> Any:
    """Return the ``pyarrow.Table`` of an Arrow IPC stream."""
    return library("pyarrow.ipc").open_stream(io.BytesIO(content)).read_all()


def concat(tables: Sequence[Any]) -> Any:
    """Concatenate tables with the same columns."""
    return tables[0] if len(tables) == 1 else library("pyarrow").concat_tables(tables)


def polars_of(table: Any) -> Any:
    """Return an Arrow table as a ``polars.DataFrame``."""
    return library("polars").from_arrow(table)


def pandas_of(table: Any) -> Any:
    """Return an Arrow table as a ``pandas.DataFrame``."""
    library("pandas")
    return table.to_pandas()


def arrow_of_rows(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]]) -> Any:
    """Return rows of JSON values as a ``pyarrow.Table``.

    Args:
        columns: name and type as in the service, such as ``decimal(10,2)``; names may repeat.
        rows: values in the order of the columns.
    """
    arrow = library("pyarrow")
    kinds = [parse_type(text) for _, text in columns]
    fields = [arrow.field(name, _arrow_type(arrow, kind)) for (name, _), kind in zip(columns, kinds, strict=True)]
    arrays = [arrow.array([_python(row[place], kind) for row in rows], fields[place].type) for place, kind in enumerate(kinds)]
    return arrow.Table.from_arrays(arrays, schema=arrow.schema(fields))


def _arrow_type(arrow: Any, kind: ColumnType) -> Any:
    match kind.name:
        case "decimal":
            return arrow.decimal128(*kind.numbers)
        case "array":
            return arrow.list_(_arrow_type(arrow, kind.inner[0]))
        case "map":
            return arrow.map_(*(_arrow_type(arrow, inner) for inner in kind.inner))
        case "struct":
            return arrow.struct([(name, _arrow_type(arrow, inner)) for name, inner in zip(kind.names, kind.inner, strict=True)])
    plain = {
        "boolean": arrow.bool_(),
        "int": arrow.int32(),
        "bigint": arrow.int64(),
        "double": arrow.float64(),
        "bytes": arrow.binary(),
        "date": arrow.date32(),
        "time": arrow.time64("us"),
        "timestamp": arrow.timestamp("us", "UTC"),
    }
    return plain.get(kind.name, arrow.string())


_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "double": float,
    "decimal": lambda value: Decimal(str(value)),
    "bigint": int,
    "date": lambda value: date.fromisoformat(value),
    "time": lambda value: time.fromisoformat(value),
    "timestamp": lambda value: datetime.fromisoformat(value),
    "bytes": base64.b64decode,
}


def _python(value: Any, kind: ColumnType) -> Any:
    """Convert a JSON value to its type; a double may be a text (``"NaN"``), and so may numbers with many digits."""
    if value is None:
        return None
    match kind.name:
        case "array":
            return [_python(each, kind.inner[0]) for each in value]
        case "map":
            return [(name, _python(each, kind.inner[1])) for name, each in value.items()]
        case "struct":
            return {name: _python(value.get(name), inner) for name, inner in zip(kind.names, kind.inner, strict=True)}
    read = _READ.get(kind.name)
    return value if read is None else read(value)


def is_frame(source: object) -> bool:
    """Return whether something is a frame: pyarrow, Polars and pandas frames have Arrow's stream interface."""
    return hasattr(source, "__arrow_c_stream__") or (type(source).__module__.startswith("pandas") and hasattr(source, "columns"))


def frame_batches(frame: Any, max_rows: int) -> Iterator[tuple[bytes, int]]:
    """Yield a frame as Arrow IPC streams of up to ``max_rows`` rows, each with its number of rows."""
    arrow = library("pyarrow")
    if type(frame).__module__.startswith("pandas"):
        frame = arrow.Table.from_pandas(frame, preserve_index=False)
    reader = arrow.RecordBatchReader.from_stream(frame)
    for batch in reader:
        for first in range(0, batch.num_rows, max_rows):
            part = batch.slice(first, max_rows)
            sink = io.BytesIO()
            with library("pyarrow.ipc").new_stream(sink, reader.schema) as writer:
                writer.write_batch(part)
            yield sink.getvalue(), part.num_rows


def file_frame(path: Path, columns: Mapping[str, str] | None) -> Any:
    """Return a reader of a CSV, Parquet or Arrow file, batch by batch.

    Args:
        path: of the file; its suffix is its kind.
        columns: name and type of the relation's columns; CSV is parsed with these types.
    """
    arrow = library("pyarrow")
    match path.suffix.lower():
        case ".csv":
            csv = library("pyarrow.csv")
            types = {name: _arrow_type(arrow, parse_type(text)) for name, text in (columns or {}).items()}
            return csv.open_csv(path, convert_options=csv.ConvertOptions(column_types=types, strings_can_be_null=True))
        case ".parquet":
            file = library("pyarrow.parquet").ParquetFile(path)
            return arrow.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches())
        case _:
            return library("pyarrow.feather").read_table(path)


def csv_rows(path: Path, columns: Mapping[str, str] | None, first: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of a CSV file as JSON values; a text that is not of its column's type stays a text.

    It is slow compared with ``file_frame``, but skips no row: the service can then report what is wrong with such a text.

    Args:
        path: of the file.
        columns: name and type of the relation's columns.
        first: the first row to yield, from 0.
    """
    arrow, csv = library("pyarrow"), library("pyarrow.csv")
    kinds = {name: parse_type(text) for name, text in (columns or {}).items()}
    with csv.open_csv(path) as reader:
        texts = dict.fromkeys(reader.schema.names, arrow.string())
    with csv.open_csv(path, convert_options=csv.ConvertOptions(column_types=texts, strings_can_be_null=True)) as reader:
        passed = 0
        for batch in reader:
            for row in batch.slice(max(0, first - passed)).to_pylist():
                yield {name: value if value is None else _csv_value(value, kinds.get(name)) for name, value in row.items()}
            passed += batch.num_rows


def _csv_value(text: str, kind: ColumnType | None) -> Any:
    """Return a text of a CSV file as its column's JSON value; the text itself if it is not of the type."""
    match "" if kind is None else kind.name:
        case "int" | "bigint" if _WHOLE.fullmatch(text):
            return int(text)
        case "double" if _NUMBER.fullmatch(text):
            return float(text)
        case "boolean" if text.lower() in _TRUTH:
            return _TRUTH[text.lower()]
        case "timestamp":
            return text.replace(" ", "T", 1)
    return text


_WHOLE: Final = re.compile(r"[-+]?[0-9]+")
_NUMBER: Final = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_TRUTH: Final = {"true": True, "1": True, "false": False, "0": False}

FRAME_FILES: Final = frozenset({".csv", ".parquet", ".arrow", ".feather", ".ipc"})

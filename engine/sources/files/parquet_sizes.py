"""How many rows of a Parquet file are decoded at once; the file's metadata decides before decoding.

A few bytes can stand for gigabytes: one long dictionary text to which every row refers, texts that repeat the one before, nulls.
Results of a record do not depend on how many are read with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from engine.plan.model import RelationSchema
from engine.records.arrow_bounds import MAX_DECODED_BYTES

PIECE_BYTES: Final = 32 << 20
"""Bytes decoded at once: a row group may be as large as its file."""

PIECE_ROWS: Final = 65_536
"""Rows decoded at once, if their bytes say little: a column of nulls, or of one value, is a few bytes for any number of rows."""

_VALUE_BYTES = 8
"""Size of a number, and of a null of a number's type."""

_LEAST_ROWS_OF_PREFIXES = 64
"""Rows of texts stored by common prefixes: these texts do not show their length; ordinary ones are short."""


def piece_rows(relations: Sequence[RelationSchema]) -> int:
    """Return how many rows a piece may have: each row has all columns of its relation, even those missing in the file."""
    widest = max((relation.columns.places for relation in relations), default=1)
    return max(1, min(PIECE_ROWS, PIECE_BYTES // _VALUE_BYTES // widest))


def step_rows(metadata: pq.FileMetaData, number: int, columns: Sequence[str], first_row: Callable[[str], pa.RecordBatch]) -> int:
    """Return how many rows of a row group can be decoded at once, whatever values they refer to.

    Args:
        metadata: the file's.
        number: which row group.
        columns: those to read.
        first_row: reads one row of the column with this path, texts as dictionaries.
    """
    group = metadata.row_group(number)
    rows = max(1, group.num_rows)
    chunks = [chunk for chunk in map(group.column, range(group.num_columns)) if chunk.path_in_schema.split(".")[0] in columns]
    plain = max(group.total_byte_size, _VALUE_BYTES * sum(chunk.num_values for chunk in chunks), PIECE_BYTES)
    step: int = min(PIECE_ROWS, max(1, rows * PIECE_BYTES // plain))
    widths = {metadata.schema.column(place).path: metadata.schema.column(place).length for place in range(metadata.num_columns)}
    for chunk in chunks:
        per_row = max(1, -(-chunk.num_values // rows))
        if step * per_row * max(chunk.total_uncompressed_size, widths[chunk.path_in_schema]) <= MAX_DECODED_BYTES:
            continue
        longest = _longest(chunk, widths[chunk.path_in_schema], first_row)
        least = _LEAST_ROWS_OF_PREFIXES if "DELTA_BYTE_ARRAY" in chunk.encodings else 1
        step = min(step, max(least, MAX_DECODED_BYTES // (longest * per_row)))
    return step


def _longest(chunk: Any, width: int, first_row: Callable[[str], pa.RecordBatch]) -> int:
    """Return the size of the longest value that is stored once and may repeat many times; 1 if there is none."""
    if chunk.physical_type == "FIXED_LEN_BYTE_ARRAY":
        return max(1, width)
    if "DELTA_BYTE_ARRAY" in chunk.encodings:
        return max(1, int(chunk.total_uncompressed_size))
    if chunk.physical_type != "BYTE_ARRAY" or not chunk.has_dictionary_page:
        return 1
    dictionaries = (each.dictionary for column in first_row(chunk.path_in_schema).columns for each in _dictionaries(column))
    return max((pc.max(pc.binary_length(values)).as_py() or 1 for values in dictionaries), default=1)


def _dictionaries(column: pa.Array) -> Iterator[pa.DictionaryArray]:
    if isinstance(column, pa.DictionaryArray):
        yield column
    elif pa.types.is_struct(column.type):
        for place in range(column.type.num_fields):
            yield from _dictionaries(column.field(place))
    elif pa.types.is_map(column.type):
        yield from _dictionaries(column.keys)
        yield from _dictionaries(column.items)
    elif pa.types.is_nested(column.type):
        yield from _dictionaries(column.values)

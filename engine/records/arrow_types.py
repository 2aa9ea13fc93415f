"""Supported types of Arrow columns: those that Polars reads, and whose size is known before decoding.

A list of supported types, not of unsupported ones: Polars ends with a panic at types it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

_READ: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_timestamp,
    pa.types.is_duration,
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_struct,
    pa.types.is_map,
)
"""Types that are supported with any parameters; dictionaries are supported too."""


class TypeNotRead(ValueError):
    """A column has an unsupported type."""


def check_types(schema: pa.Schema) -> None:
    """Refuse columns of unsupported types, at any depth.

    Raises:
        TypeNotRead: it names the column and the type.
    """
    for field in schema:
        for kind in kinds_of(field.type):
            if not _is_read(kind):
                raise TypeNotRead(f"column '{field.name}' is of type {kind}, which is not read; use plain values")


def kinds_of(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Yield a type and all types inside of it; for an extension type those of its storage."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    yield kind
    if pa.types.is_dictionary(kind):
        yield from kinds_of(kind.value_type)
    for number in range(kind.num_fields):
        yield from kinds_of(kind.field(number).type)


def _is_read(kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind):
        return bool(kind.bit_width <= 128 and 0 <= kind.scale <= kind.precision)
    if pa.types.is_fixed_size_binary(kind):
        return bool(kind.byte_width > 0)
    if pa.types.is_fixed_size_list(kind):
        return bool(kind.list_size > 0)
    return pa.types.is_dictionary(kind) or any(is_kind(kind) for is_kind in _READ)

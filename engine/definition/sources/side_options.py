"""Which options of keys and values mean something to a format, as topics are read and as they are written. Pure: definitions are made of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from engine.errors import Problem
from engine.expressions.model import Model

CHANGES: Final = "debezium"
"""The format of values that are changes of a database's table."""

READ: Final[Mapping[str, tuple[str, ...]]] = {
    "json": ("registry", "unwrapped", "time_unit", "has_key"),
    "json_lenient": ("registry", "unwrapped", "has_key"),
    "avro": ("registry", "schema", "unwrapped", "has_key"),
    "protobuf": ("registry", "schema", "message", "has_key"),
    "delimited": ("delimiter", "has_key"),
    "string": ("has_key",),
    "bytes": ("has_key",),
    "kafka": ("has_key",),
    CHANGES: ("registry", "encoding", "time_unit", "decimals", "absent", "source_table"),
}
"""Of sources."""

_NAMING: Final = ("subject_strategy", "record", "has_key")
"""Of any format that is written, as far as this table knows: ``DeliveredSide.faults`` says more."""

WRITTEN: Final[Mapping[str, tuple[str, ...]]] = {
    # No `schema` of json: nothing holds what is written against a JSON Schema that somebody gives.
    "json": ("registry", "unwrapped", *_NAMING),
    "avro": ("registry", "schema", "unwrapped", *_NAMING),
    # Messages are made of the columns.
    "protobuf": ("registry", *_NAMING),
    "delimited": ("delimiter", *_NAMING),
    "string": _NAMING,
    "bytes": _NAMING,
    "kafka": _NAMING,
}
"""Of outputs."""

_WITH_SCHEMA: Final = ("avro", "protobuf")
"""Payloads that nobody can read who has no schema."""


class Sided(Protocol):
    """What a definition says of keys or values."""

    @property
    def format(self) -> str:
        """The format's name."""
        ...

    @property
    def registry(self) -> str | None:
        """The connection of a registry."""
        ...

    @property
    def schema_(self) -> str | None:
        """A schema that is given."""
        ...


def ignored(side: Model, format_name: str, options: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Yield the options that are said and mean nothing to the format."""
    for name, field in type(side).model_fields.items():
        alias = field.alias or name
        if name != "format" and alias not in options[format_name] and getattr(side, name) != field.default:
            yield alias


def ignored_fault(pointer: str, option: str, format_name: str, code: str) -> Problem:
    """Return the fault of an option that means nothing."""
    return Problem(f"{pointer}/{option}", code, f"`{option}` means nothing to the format {format_name}; leave it out")


def schema_faults(side: Sided, pointer: str, options: Mapping[str, tuple[str, ...]]) -> Iterator[Problem]:
    """Yield a fault where there is no schema by which payloads can be read."""
    if side.format not in _WITH_SCHEMA or side.registry is not None or side.schema_ is not None:
        return
    way = ", or give `schema`" if "schema" in options[side.format] else "; without it nobody could read what is written"
    yield Problem(
        f"{pointer}/registry", "invalid_value", f"{side.format} needs a schema: name the connection of a registry here{way}"
    )

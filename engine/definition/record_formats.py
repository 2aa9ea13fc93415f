"""Formats in which topics hold keys and values: what each can hold.

How they are read and written, as far as they are: ``engine.formats``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, get_args

from engine.expressions.types.types import ColumnType, Kind, ScalarKind

DEFAULT_DELIMITER: Final = ","
NAMED_DELIMITERS: Final = {"TAB": "\t", "SPACE": " "}
"""Delimiters that properties write as words."""


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """What keys and values of one format can hold.

    Attributes:
        name: as properties give it, in upper case.
        value_kinds: kinds of types that a value's columns may have, at any depth.
        key_kinds: the same of a key's columns.
        is_single: a key or a value is one column.
        can_wrap: a single value column can stand in an object of its own.
        can_unwrap: a single value column can stand alone.
        takes_delimiter: what stands between columns can be chosen.
    """

    name: str
    value_kinds: frozenset[Kind]
    key_kinds: frozenset[Kind]
    is_single: bool = False
    can_wrap: bool = False
    can_unwrap: bool = False
    takes_delimiter: bool = False

    def unholdable(self, declared: ColumnType, *, is_key: bool = False) -> ColumnType | None:
        """Return the first type in a column's type that the format cannot hold, None where it holds all."""
        kinds = self.key_kinds if is_key else self.value_kinds
        return next((each for each in declared.walk() if each.kind not in kinds), None)


def delimiter_of(text: str) -> str:
    """Return the character that a delimiter property means.

    Raises:
        ValueError: it is neither one visible character nor the name of one.
    """
    if text in NAMED_DELIMITERS:
        return NAMED_DELIMITERS[text]
    if len(text) == 1 and not text.isspace():
        return text
    raise ValueError(f"a delimiter is one character, or {' or '.join(NAMED_DELIMITERS)}, not {text!r}")


_SCALARS: Final[frozenset[Kind]] = frozenset(get_args(ScalarKind)) | {"decimal"}
_ALL: Final[frozenset[Kind]] = _SCALARS | {"array", "map", "struct"}
_WITHOUT_MAPS: Final[frozenset[Kind]] = _ALL - {"map"}
"""Maps have no order of their entries, so that two equal ones could be two keys."""

_OF_KAFKA: Final[frozenset[Kind]] = frozenset({"int", "bigint", "double", "string", "bytes"})

JSON: Final = RecordFormat("JSON", _ALL, _WITHOUT_MAPS, can_wrap=True, can_unwrap=True)
DELIMITED: Final = RecordFormat("DELIMITED", _SCALARS, _SCALARS, can_unwrap=True, takes_delimiter=True)
KAFKA: Final = RecordFormat("KAFKA", _OF_KAFKA, _OF_KAFKA, is_single=True, can_unwrap=True)

NONE: Final = RecordFormat("NONE", frozenset(), frozenset())
_OF_REGISTRIES: Final = tuple(
    RecordFormat(name, _ALL, _WITHOUT_MAPS, can_wrap=True, can_unwrap=True)
    for name in ("JSON_SR", "AVRO", "PROTOBUF", "PROTOBUF_NOSR")
)
"""Their records begin with the number of a schema."""

RECORD_FORMATS: Final[dict[str, RecordFormat]] = {each.name: each for each in (JSON, DELIMITED, KAFKA, NONE, *_OF_REGISTRIES)}
"""All that the language has, by name."""

"""The Avro schema of columns, for results without a given schema."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from engine.expressions.types.types import ColumnType, Schema
from engine.formats.port import FormatInvalid

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NO_LETTER: Final = re.compile(r"[^A-Za-z0-9_]")
_LEAVES: Final[dict[str, Any]] = {
    "boolean": "boolean",
    "int": "int",
    "bigint": "long",
    "double": "double",
    "string": "string",
    "bytes": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "time": {"type": "long", "logicalType": "time-micros"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
}
"""Times and timestamps keep their microseconds."""


def derived_schema(columns: Schema, name: str, *, is_key: bool, full_name: str = "") -> str:
    """Return the schema of a record with these columns; in values each may be null, in keys none.

    Args:
        columns: of the record.
        name: from which the record's name is made.
        is_key: it is a key.
        full_name: the record's name with its namespace, instead of ``name``.

    Raises:
        FormatInvalid: a column's name is not allowed in Avro.
    """
    space, _, own = full_name.rpartition(".")
    record = _Deriving().record(tuple(columns.items()), own or _NO_LETTER.sub("_", name) or "Record", is_optional=not is_key)
    return json.dumps({**record, "namespace": space} if space else record, separators=(",", ":"))


class _Deriving:
    """Numbers nested records, because a name may be declared only once."""

    def __init__(self) -> None:
        self._count = 0

    def record(self, fields: tuple[tuple[str, ColumnType], ...], name: str, *, is_optional: bool = True) -> dict[str, Any]:
        for each, _ in fields:
            if not _NAME.fullmatch(each):
                raise FormatInvalid(
                    f"the column {each!r} has no name that Avro allows (letters, digits and _); rename it in `select`"
                )
        named = name if _NAME.fullmatch(name) else f"_{name}"
        return {
            "type": "record",
            "name": named,
            "fields": [self._field(each, declared, is_optional) for each, declared in fields],
        }

    def _field(self, name: str, declared: ColumnType, is_optional: bool) -> dict[str, Any]:
        inner = self._of(declared)
        return {"name": name, "type": ["null", inner], "default": None} if is_optional else {"name": name, "type": inner}

    def _of(self, declared: ColumnType) -> Any:
        match declared:
            case ColumnType(kind="decimal"):
                return {"type": "bytes", "logicalType": "decimal", "precision": declared.precision, "scale": declared.scale or 0}
            case ColumnType(kind="array", element=ColumnType() as element):
                return {"type": "array", "items": ["null", self._of(element)]}
            case ColumnType(kind="map", value=ColumnType() as value):
                return {"type": "map", "values": ["null", self._of(value)]}
            case ColumnType(kind="struct", fields=fields):
                self._count += 1
                return self.record(fields, f"Struct{self._count}")
        return _LEAVES[declared.kind]

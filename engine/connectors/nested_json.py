"""Values inside arrays, maps and structs as JSON knows them: the same in records, rows and materialised tables. Pure."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any

import polars as pl

from engine.definition.types import ColumnType


def nested_json(value: Any, declared: ColumnType) -> Any:
    """Return a value: bytes as base64, timestamps as RFC 3339 in UTC, decimals, dates and times as text, maps as objects."""
    if value is None:
        return None
    if isinstance(value, pl.Series):
        value = value.to_list()
    match declared.kind:
        case "array" if declared.element is not None:
            return [nested_json(item, declared.element) for item in value]
        case "map" if declared.value is not None:
            return {entry["key"]: nested_json(entry["value"], declared.value) for entry in value}
        case "struct":
            return {name: nested_json(value.get(name), field) for name, field in declared.fields}
        case "bytes":
            return base64.b64encode(value).decode()
        case "timestamp" if isinstance(value, datetime):
            return value.isoformat().replace("+00:00", "Z")
        case "decimal" | "date" | "time":
            return str(value)
        case _:
            return value

"""Kept late records and rejects as JSON: whether one has certain values. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation


def matches(record: str, values: Mapping[str, object]) -> bool:
    """Say whether a record's JSON has these values: at least one of them, and no other value for any.

    Args:
        record: a JSON object; one that was cut off has none.
        values: qualified or plain column → value. A record names its columns either way.
    """
    try:
        parsed = json.loads(record)
    except ValueError:
        return False
    if not isinstance(parsed, dict):
        return False
    own = {name: parsed.get(name, parsed.get(name.rpartition(".")[2])) for name in values}
    known = {name: value for name, value in own.items() if value is not None}
    return bool(known) and all(is_same(value, values[name]) for name, value in known.items())


def is_same(written: object, value: object) -> bool:
    """Say whether a JSON value stands for a column's value."""
    if isinstance(value, bool) or isinstance(written, bool):
        return written is value
    if isinstance(value, int | float | Decimal):
        return _number(written) == _number(value)
    if isinstance(value, datetime):
        return _instant(written) == value
    return written == (value if isinstance(value, str) else str(value))


def _number(value: object) -> Decimal | None:
    try:
        return Decimal(str(value))
    except InvalidOperation:
        return None


def _instant(value: object) -> datetime | None:
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)

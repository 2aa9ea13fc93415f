"""Times, keys and conditions in the form of URLs and bodies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

Instant: TypeAlias = datetime | str | int
"""An event time: a datetime with a time zone, RFC 3339, or milliseconds since 1970."""

Duration: TypeAlias = timedelta | str
"""A duration: a timedelta, or a text such as ``5m`` or ``PT5M``."""

Key: TypeAlias = Any
"""A key: the value of its one column, or a mapping with every column."""

Where: TypeAlias = Mapping[str, Any]
"""Conditions, which must all hold.

Column → value: equal; ``None``: it is null; a list: one of them. ``column.ge`` (``gt``, ``le``, ``lt``, ``ne``, ``in``, ``null``) → value:
other comparisons.
"""

_COMPARISONS = frozenset({"eq", "ne", "gt", "ge", "lt", "le", "in", "null"})


def instant(value: Instant | None) -> str | None:
    """Return a time in the form of parameters.

    Raises:
        ValueError: a datetime without a time zone.
    """
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{value!r} has no time zone; give one, such as datetime.UTC")
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return None if value is None else str(value)


def duration(value: Duration | None) -> str | None:
    """Return a duration in the form of definitions; a timedelta in milliseconds."""
    if isinstance(value, timedelta):
        return f"{value // timedelta(milliseconds=1)}ms"
    return value


def conditions(where: Where | None, prefix: str = "where") -> Iterator[tuple[str, str]]:
    """Yield conditions as query parameters."""
    for name, value in (where or {}).items():
        column, dot, word = name.rpartition(".")
        if not dot or word not in _COMPARISONS:
            column, word = name, "in" if _is_list(value) else "null" if value is None else "eq"
            value = True if value is None else value
        yield f"{prefix}.{column}" + ("" if word == "eq" else f".{word}"), _listed(value) if word == "in" else value_text(value)


def key_conditions(key: Key) -> Iterator[tuple[str, str]]:
    """Yield a key as ``key.<column>=`` parameters, or as ``key=`` for a single value."""
    if isinstance(key, Mapping):
        yield from ((f"key.{column}", value_text(value)) for column, value in key.items())
    else:
        yield "key", value_text(key)


def value_text(value: Any) -> str:
    """Return a value in the form of parameters and paths."""
    match value:
        case bool():
            return str(value).lower()
        case datetime():
            return str(instant(value))
        case str() | int() | float() | Decimal():
            return str(value)
        case date() | time():
            return value.isoformat()
        case _:
            return json_text(value)


def json_text(value: Any) -> str:
    """Return JSON; times are RFC 3339, decimals texts, bytes base64."""
    return json.dumps(value, default=_plain, separators=(",", ":"), ensure_ascii=False)


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return instant(value)
        case date() | time():
            return value.isoformat()
        case timedelta():
            return duration(value)
        case Decimal():
            return str(value)
        case bytes():
            import base64

            return base64.b64encode(value).decode()
        case Mapping():
            return dict(value)
        case Sequence() | set() | frozenset():
            return list(value)
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON: {value!r}")


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes)


def _listed(value: Any) -> str:
    return json_text([each if isinstance(each, str) else value_text(each) for each in value]) if _is_list(value) else str(value)

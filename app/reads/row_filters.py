"""Conditions on rows in URLs and bodies: ``key.origin=JFK``, ``where.delay.ge=5``. Parsed with a table's columns. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from app.errors.app_errors import BadRequest, Fault
from app.http.parameters import ParameterFaults, bad_parameter
from app.http.values import parse_value
from engine.expressions.types.types import ColumnType, Schema

Operator = Literal["eq", "ne", "gt", "ge", "lt", "le", "in", "null"]
KEY_PREFIX, COLUMN_PREFIX = "key.", "where."
MAX_FILTERS = 32
MAX_LISTED = 1_000
"""Limit of values in one ``in``."""

_ORDERED = ("gt", "ge", "lt", "le")
_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One condition: ``column operator value``.

    Attributes:
        value: of the column's Python type; for ``in`` a list of them; for ``null`` whether the column must be null.
    """

    column: str
    operator: Operator
    value: Any


def is_filter(parameter: str) -> bool:
    return parameter.startswith((KEY_PREFIX, COLUMN_PREFIX))


def parse_filters(parameters: Iterable[tuple[str, str]], columns: Schema, key: Sequence[str]) -> tuple[Comparison, ...]:
    """Parse conditions; all of them must hold.

    Raises:
        BadRequest: ``unknown_parameter``, ``bad_parameter``: for each that is wrong, with the column and what a value of its type is like.
    """
    found: dict[tuple[str, Operator], Comparison] = {}
    faults = ParameterFaults()
    for count, (parameter, text) in enumerate(parameters):
        if count == MAX_FILTERS:
            faults.add(bad_parameter(parameter, f"at most {MAX_FILTERS} conditions"))
            break
        with faults.part():
            comparison = _parse(parameter, text, columns, key)
            place = comparison.column, comparison.operator
            if place in found:
                raise bad_parameter(parameter, "is given twice")
            found[place] = comparison
    faults.raise_all()
    return tuple(found.values())


def _parse(parameter: str, text: str, columns: Schema, key: Sequence[str]) -> Comparison:
    is_key = parameter.startswith(KEY_PREFIX)
    column, dot, word = parameter.partition(".")[2].partition(".")
    allowed = key if is_key else columns.names
    if column not in allowed:
        prefix = KEY_PREFIX if is_key else COLUMN_PREFIX
        known = ", ".join(f"{prefix}{name}" for name in allowed)
        raise _unknown(parameter, f"'{column}' is no {'key ' if is_key else ''}column; this table takes {known}")
    if word not in get_args(Operator) and dot:
        known = ", ".join(get_args(Operator))
        raise _unknown(parameter, f"'{word}' is no comparison; after the column may stand .{known}")
    operator = cast("Operator", word) if dot else "eq"
    try:
        return Comparison(column, operator, _value(text, operator, columns[column]))
    except ValueError as error:
        raise bad_parameter(parameter, str(error)) from error


def _unknown(parameter: str, detail: str) -> BadRequest:
    return BadRequest("unknown_parameter", f"{parameter}: {detail}", [Fault(f"?{parameter}", "unknown_parameter", detail)])


def _value(text: str, operator: Operator, declared: ColumnType) -> Any:
    if operator == "null":
        if text not in _BOOLEANS:
            raise ValueError(f"{text[:40]!r} is not true or false")
        return _BOOLEANS[text]
    if operator in _ORDERED and declared.kind == "boolean":
        raise ValueError("a column of type boolean has no order; compare it with eq, ne or in")
    if operator in _ORDERED and declared.is_nested:
        raise ValueError(f"a column of type {declared} has no order; compare it with eq, ne or in")
    if operator == "in":
        return [parse_value(one, declared) for one in _listed(text)]
    return parse_value(text, declared)


def _listed(text: str) -> list[str]:
    """Return the texts of a list: separated by commas, or a JSON array if a value has a comma."""
    if not text.startswith("["):
        parts = text.split(",")
    else:
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError("a list that begins with [ is a JSON array") from error
        parts = [_text(one) for one in parsed]
    if len(parts) > MAX_LISTED:
        raise ValueError(f"{len(parts)} values; at most {MAX_LISTED}")
    return parts


def parse_key(given: Any, columns: Schema, key: Sequence[str]) -> tuple[object, ...]:
    """Parse one key of a lookup: an object with every key column; for a key of one column also the bare value.

    Raises:
        ValueError: a column is missing, unknown, or its value is not of its type.
    """
    if isinstance(given, Mapping):
        missing = [name for name in key if name not in given]
        unknown = [name for name in given if name not in key]
        if missing or unknown:
            fault = f"{', '.join(missing)} is missing" if missing else f"{unknown[0][:80]!r} is no key column"
            raise ValueError(f"{fault}; a key has {', '.join(key)}")
        values = [given[name] for name in key]
    elif len(key) == 1:
        values = [given]
    else:
        raise ValueError(f"a key of this table is an object with {', '.join(key)}")
    return tuple(_key_part(name, value, columns[name]) for name, value in zip(key, values, strict=True))


def _key_part(name: str, value: Any, declared: ColumnType) -> object:
    try:
        return parse_value(_text(value), declared)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _text(value: Any) -> str:
    """Return a JSON value in the form of a URL."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | Mapping):
        return json.dumps(value)
    raise ValueError("a value here is a text, a number, true or false")

"""``json.loads`` with every digit of its numbers, for any number of digits."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable
from decimal import Decimal, InvalidOperation
from typing import Any

from engine.expressions.types.types import ColumnType
from engine.formats.json.json_values import MAX_ZEROS

NumberReader = Callable[[str], Any]


class NoNumber(float):
    """A text's ``NaN``, ``Infinity`` or ``-Infinity``. JSON has none of them; Python reads and writes them."""


class JsonReader:
    """Reads JSON texts whose values are of certain types.

    Args:
        types: of the values.
        known: names of the fields in use; None: all. In the others, constants that JSON does not have are refused here.
    """

    def __init__(self, types: Iterable[ColumnType] = (), known: Collection[str] | None = None) -> None:
        kinds = set().union(*map(_scalar_kinds, types))
        self._known = known
        self._has_no_numbers = False
        # Decimals must not pass through a double, and a double keeps its sign even as -0.
        of_floats: NumberReader | None = Decimal if "decimal" in kinds else None
        self._of_ints: NumberReader = _int_or_negative_zero if "double" in kinds else int
        self._decoder = json.JSONDecoder(parse_float=of_floats, parse_int=self._of_ints, parse_constant=self._constant)
        exact = None if of_floats is None else _any_decimal
        self._patient = json.JSONDecoder(parse_float=exact, parse_int=self._any_int, parse_constant=self._constant)

    def read(self, text: str | bytes) -> Any:
        """Read one text; a byte order mark before it does not count.

        Raises:
            ValueError: it is not JSON (``JSONDecodeError``), or not UTF-8 (``UnicodeDecodeError``).
            RecursionError: it is nested too deeply.
        """
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        self._has_no_numbers = False
        try:
            value = self._decoder.decode(text)
        except json.JSONDecodeError:
            raise
        except (ValueError, InvalidOperation):  # a number with more digits, or a greater exponent, than Python reads
            value = self._patient.decode(text)
        if self._has_no_numbers and self._known is not None and isinstance(value, dict):
            strange = next((name for name, each in value.items() if name not in self._known and _has_no_number(each)), None)
            if strange is not None:
                raise ValueError(f"the field {strange!r} holds NaN or Infinity, which JSON does not have; write null")
        return value

    def _constant(self, text: str) -> NoNumber:
        self._has_no_numbers = True
        return NoNumber(text)

    def _any_int(self, text: str) -> Any:
        return Decimal(text) if len(text) > MAX_ZEROS else self._of_ints(text)


def _scalar_kinds(declared: ColumnType) -> set[str]:
    if declared.is_nested:
        inner = [kind for kind in (declared.element, declared.value) if kind is not None] + [kind for _, kind in declared.fields]
        return set().union(*map(_scalar_kinds, inner))
    return {declared.kind}


def _has_no_number(value: Any) -> bool:
    """Whether a value contains one, at any depth."""
    match value:
        case dict():
            return any(map(_has_no_number, value.values()))
        case list():
            return any(map(_has_no_number, value))
    return isinstance(value, NoNumber)


def _int_or_negative_zero(text: str) -> int | float:
    return -0.0 if text == "-0" else int(text)


def _any_decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        if not any(digit in "123456789" for digit in text.lower().partition("e")[0]):
            return Decimal(0)
        beyond = MAX_ZEROS + 1 if math.isinf(float(text)) else -MAX_ZEROS - 1
        return Decimal(-1 if text.startswith("-") else 1).scaleb(beyond)

"""``json.loads`` with every digit of its numbers, however many they are."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from decimal import Decimal, InvalidOperation
from typing import Any

from engine.connectors.json_values import MAX_ZEROS
from engine.definition.types import ColumnType

NumberReader = Callable[[str], Any]


class JsonReader:
    """Reads JSON texts whose values are of certain types."""

    def __init__(self, types: Iterable[ColumnType] = ()) -> None:
        kinds = set().union(*map(_leaf_kinds, types))
        # Decimals must not pass through a double, and what is a double has a sign even as -0.
        self._of_floats: NumberReader | None = Decimal if "decimal" in kinds else None
        self._of_ints: NumberReader | None = _int_or_negative_zero if "double" in kinds else None

    def read(self, text: str | bytes) -> Any:
        """Read one text; a byte order mark before it does not count.

        Raises:
            ValueError: it is not JSON (``JSONDecodeError``), or not UTF-8 (``UnicodeDecodeError``).
            RecursionError: it is nested too deeply.
        """
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        try:
            return json.loads(text, parse_float=self._of_floats, parse_int=self._of_ints)
        except json.JSONDecodeError:
            raise
        except (ValueError, InvalidOperation):  # a number of more digits, or a greater exponent, than Python takes
            exact = None if self._of_floats is None else _any_decimal
            return json.loads(text, parse_float=exact, parse_int=self._any_int)

    def _any_int(self, text: str) -> Any:
        return Decimal(text) if len(text) > MAX_ZEROS else (self._of_ints or int)(text)


def _leaf_kinds(declared: ColumnType) -> set[str]:
    if declared.is_nested:
        inner = [kind for kind in (declared.element, declared.value) if kind is not None] + [kind for _, kind in declared.fields]
        return set().union(*map(_leaf_kinds, inner))
    return {declared.kind}


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

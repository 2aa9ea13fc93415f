"""Plain values as JSON text: decimals keep their digits, which the standard encoder cannot write.

A decimal with very many zeros is written with an exponent: a few bytes of JSON can stand for a number whose digits fill the memory.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

from engine.expressions.library.numbers.numerals import of_double
from engine.formats.json.json_values import MAX_ZEROS

_quoted = json.JSONEncoder(ensure_ascii=False).encode


def json_text(value: Any) -> str:
    """Write a value without spaces."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return _quoted(value)
        case int():
            return str(value)
        case Decimal():
            return format(value, "f") if abs(value.adjusted()) <= MAX_ZEROS else str(value)
        case float():
            return of_double(value) if math.isfinite(value) else _quoted(of_double(value))
        case dict():
            return "{" + ",".join(f"{_quoted(name)}:{json_text(each)}" for name, each in value.items()) + "}"
        case list():
            return "[" + ",".join(map(json_text, value)) + "]"
    raise TypeError(f"{type(value).__name__} is no value of JSON")

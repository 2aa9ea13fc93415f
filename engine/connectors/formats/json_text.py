"""Plain values as JSON text: decimals keep their digits, which the standard encoder cannot write. And numbers as Java writes them."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

_PLAIN_FROM, _PLAIN_BELOW = 1e-3, 1e7
"""Between these Java writes a double without an exponent."""

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
            return format(value, "f")
        case float():
            return java_double(value) if math.isfinite(value) else _quoted(java_double(value))
        case dict():
            return "{" + ",".join(f"{_quoted(name)}:{json_text(each)}" for name, each in value.items()) + "}"
        case list():
            return "[" + ",".join(map(json_text, value)) + "]"
    raise TypeError(f"{type(value).__name__} is no value of JSON")


def java_double(value: float) -> str:
    """Write a double as Java does: the fewest digits that are this number and no other, at least one on each side of the point.

    >>> java_double(0.5), java_double(1e7), java_double(1.5e-5), java_double(100.0)
    ('0.5', '1.0E7', '1.5E-5', '100.0')
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or _PLAIN_FROM <= abs(value) < _PLAIN_BELOW:
        return repr(value)
    mantissa, _, exponent = _scientific(value).partition("e")
    return f"{mantissa}E{int(exponent)}"


def _scientific(value: float) -> str:
    exact = Decimal(repr(value))
    digits = "".join(map(str, exact.as_tuple().digits)).rstrip("0")
    if len(digits) == 1:
        return format(value, ".1e")  # with two digits to choose Java takes the nearest number: 4.9E-324
    return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:]}e{exact.adjusted()}"

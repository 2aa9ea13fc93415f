"""Doubles as Java writes them, for texts that ksqlDB makes of numbers."""

from __future__ import annotations

import math
from decimal import Decimal


def of_double(value: float) -> str:
    """Return the shortest digits that read as the double: ``1.0``, ``1.0E10``, ``NaN``, ``Infinity``.

    >>> of_double(0.001), of_double(1e7), of_double(1.5e-5), of_double(-math.inf)
    ('0.001', '1.0E7', '1.5E-5', '-Infinity')
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        plain = f"{Decimal(repr(value)):f}"
        return plain if "." in plain else f"{plain}.0"
    exact = Decimal(repr(value))
    digits = "".join(map(str, exact.as_tuple().digits)).rstrip("0")
    if len(digits) == 1:  # with two digits to choose Java takes the nearest number: 4.9E-324
        mantissa, _, exponent = f"{value:.1e}".partition("e")
        return f"{mantissa}E{int(exponent)}"
    return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:]}E{exact.adjusted()}"

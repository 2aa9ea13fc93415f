"""Rows as a text, as pages show them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


def grid(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return rows below their columns; numbers end at the right."""
    cells = [[cell(each) for each in row] for row in rows]
    widths = [
        max(len(name), *(len(row[place]) for row in cells), 0) if cells else len(name) for place, name in enumerate(columns)
    ]
    is_number = [_are_numbers([row[place] for row in rows if row[place] is not None]) for place in range(len(columns))]
    lines = [" | ".join(_padded(name, width, is_right) for name, width, is_right in zip(columns, widths, is_number, strict=True))]
    lines.append("-+-".join("-" * width for width in widths))
    lines += [" | ".join(_padded(*each) for each in zip(row, widths, is_number, strict=True)) for row in cells]
    lines.append(f"({len(rows)} {'row' if len(rows) == 1 else 'rows'})")
    return "\n".join(line.rstrip() for line in lines)


def cell(value: Any) -> str:
    """Return a value as a cell shows it."""
    if value is None:
        return "NULL"
    return " ".join(value.split()) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _padded(text: str, width: int, is_right: bool) -> str:
    return text.rjust(width) if is_right else text.ljust(width)


def _are_numbers(values: Sequence[Any]) -> bool:
    return bool(values) and all(isinstance(each, int | float) and not isinstance(each, bool) for each in values)

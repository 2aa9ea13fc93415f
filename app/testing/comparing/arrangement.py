"""Which order of rows counts, where a result comes from several partitions.

Records of one partition keep their order; between partitions, event time decides among what is read together, and arrival among what is
not (T2, P2). So a test can know the order of the changes of one key, and not that of the changes of several.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from app.testing.comparing.rows import ExpectedRows, Row, equal


def by_key(expected: ExpectedRows, found: Sequence[Row], key: Sequence[str]) -> tuple[ExpectedRows, list[Row]]:
    """Bring expected and found rows into one order of keys, the order within each key kept.

    Keys are distinguished by the columns that the expected rows name; if they name none, order does not count.
    """
    named = [name for name in key if name in expected.columns]
    if not named:
        return expected, as_expected(expected, found)
    known: list[list[Any]] = []

    def place(row: Row) -> int:
        values = [row.values.get(name) for name in named]
        found_at = next((index for index, each in enumerate(known) if equal(each, values)), None)
        if found_at is None:
            known.append(values)
        return len(known) - 1 if found_at is None else found_at

    rows = tuple(sorted(expected.rows, key=place))
    return replace(expected, rows=rows), sorted(found, key=place)


def as_expected(expected: ExpectedRows, found: Sequence[Row]) -> list[Row]:
    """Bring found rows into the order of the expected ones that they match, those that match none behind.

    Rows that say more choose first, so that one that says less does not take what another one needs.
    """
    left = dict(enumerate(found))
    chosen: dict[int, Row] = {}
    for place in sorted(range(len(expected.rows)), key=lambda place: -_said(expected.rows[place])):
        match = next((index for index, row in left.items() if expected.matches(expected.rows[place], row)), None)
        if match is not None:
            chosen[place] = left.pop(match)
    return [*(chosen[place] for place in sorted(chosen)), *left.values()]


def _said(row: Row) -> int:
    return len(row.values) + (row.ts is not None)

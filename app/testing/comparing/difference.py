"""How found rows differ from expected ones, as a unified diff whose equal lines are those that match, whatever their text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

CONTEXT_LINES: Final = 3

MOST_COMPARED: Final = 4_000_000
"""Pairs of rows looked at for the longest common part; beyond, rows are compared place by place."""

Sign = Literal[" ", "-", "+", "@"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a diff: common, expected but not found, found but not expected, or a heading."""

    sign: Sign
    text: str

    def __str__(self) -> str:
        return self.text if self.sign == "@" else self.sign + self.text


@dataclass(frozen=True, slots=True)
class Pair:
    """A place in the alignment: both where they match, else one."""

    wanted: int | None
    found: int | None


def align(wanted: Sequence[T], found: Sequence[T], matches: Callable[[T, T], bool]) -> list[Pair]:
    """Align two lists along their longest common part."""
    first = 0
    while first < min(len(wanted), len(found)) and matches(wanted[first], found[first]):
        first += 1
    last = 0
    while last < min(len(wanted), len(found)) - first and matches(wanted[-1 - last], found[-1 - last]):
        last += 1
    middle = _middle(wanted[first : len(wanted) - last], found[first : len(found) - last], matches)
    head = [Pair(place, place) for place in range(first)]
    body = [
        Pair(None if pair.wanted is None else pair.wanted + first, None if pair.found is None else pair.found + first)
        for pair in middle
    ]
    return [*head, *body, *(Pair(len(wanted) - place, len(found) - place) for place in range(last, 0, -1))]


def _middle(wanted: Sequence[T], found: Sequence[T], matches: Callable[[T, T], bool]) -> list[Pair]:
    if len(wanted) * len(found) > MOST_COMPARED:
        return _by_place(wanted, found, matches)
    same = [[matches(left, right) for right in found] for left in wanted]
    longest = [[0] * (len(found) + 1) for _ in range(len(wanted) + 1)]
    for i in range(len(wanted) - 1, -1, -1):
        for j in range(len(found) - 1, -1, -1):
            longest[i][j] = 1 + longest[i + 1][j + 1] if same[i][j] else max(longest[i + 1][j], longest[i][j + 1])
    pairs: list[Pair] = []
    i = j = 0
    while i < len(wanted) or j < len(found):
        if i < len(wanted) and j < len(found) and same[i][j]:
            pairs.append(Pair(i, j))
            i, j = i + 1, j + 1
        elif j == len(found) or (i < len(wanted) and longest[i + 1][j] >= longest[i][j + 1]):
            pairs.append(Pair(i, None))
            i += 1
        else:
            pairs.append(Pair(None, j))
            j += 1
    return pairs


def _by_place(wanted: Sequence[T], found: Sequence[T], matches: Callable[[T, T], bool]) -> list[Pair]:
    pairs: list[Pair] = []
    for place in range(max(len(wanted), len(found))):
        has_both = place < len(wanted) and place < len(found)
        if has_both and matches(wanted[place], found[place]):
            pairs.append(Pair(place, place))
        else:
            pairs += [Pair(place, None)] if place < len(wanted) else []
            pairs += [Pair(None, place)] if place < len(found) else []
    return pairs


def unified(pairs: Sequence[Pair], wanted: Sequence[str], found: Sequence[str]) -> list[Line]:
    """Write an alignment as a unified diff; empty where everything matches."""
    changed = [place for place, pair in enumerate(pairs) if pair.wanted is None or pair.found is None]
    lines: list[Line] = []
    for start, end in _hunks(changed, len(pairs)):
        hunk = pairs[start:end]
        lines.append(
            Line("@", f"@@ {_range('-', [pair.wanted for pair in hunk])} {_range('+', [pair.found for pair in hunk])} @@")
        )
        lines += _lines(hunk, wanted, found)
    return lines


def _lines(hunk: Sequence[Pair], wanted: Sequence[str], found: Sequence[str]) -> Iterator[Line]:
    """Yield the lines of a hunk; of neighbours that do not match the expected ones first."""
    surplus: list[Line] = []
    for pair in hunk:
        if pair.wanted is None and pair.found is not None:
            surplus.append(Line("+", found[pair.found]))
        elif pair.wanted is not None and pair.found is None:
            yield Line("-", wanted[pair.wanted])
        elif pair.wanted is not None:
            yield from surplus
            surplus = []
            yield Line(" ", wanted[pair.wanted])
    yield from surplus


def _hunks(changed: Sequence[int], total: int) -> Iterator[tuple[int, int]]:
    start = end = -1
    for place in changed:
        if start >= 0 and place - CONTEXT_LINES <= end:
            end = min(total, place + CONTEXT_LINES + 1)
            continue
        if start >= 0:
            yield start, end
        start, end = max(0, place - CONTEXT_LINES), min(total, place + CONTEXT_LINES + 1)
    if start >= 0:
        yield start, end


def _range(sign: str, places: Sequence[int | None]) -> str:
    there = [place for place in places if place is not None]
    return f"{sign}{there[0] + 1},{len(there)}" if there else f"{sign}0,0"

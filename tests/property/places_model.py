"""Goes through rows place by place, as models of operators do: judge, let time rise, let go what is due (T1b)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from hypothesis import strategies as st

ABSENT = -(1 << 61)
"""The time before the first record."""


STEP = 100
"""Between the positions of two rows: a silence has its places there."""


MOST_ROWS = 1_000
"""Above what an operator makes of one row: a further row that an operator before it made stands behind all of that."""


class Record(Protocol):
    """What is known of a row."""

    @property
    def ts(self) -> int: ...

    @property
    def key(self) -> str | None: ...

    @property
    def op(self) -> int: ...


R = TypeVar("R", bound=Record)


class Place(NamedTuple):
    """Where a row stands.

    Attributes:
        position: of its record.
        levels: which further row of it, and of that one.
        index: which of the rows that share the place; None: it is alone.
    """

    position: int
    levels: tuple[int, ...] = ()
    index: int | None = None

    @property
    def rank(self) -> bytes | None:
        before = b"".join(b"\1" + level.to_bytes(4, "big") for level in self.levels)
        if self.index is not None:
            return before + b"\0\1" + self.index.to_bytes(8, "big") + b"\1"
        return before + b"\0\0" if before else None


class Order(NamedTuple):
    """A place, and the order of what is emitted there: sorts like place and rank."""

    position: int
    levels: tuple[int, ...] = ()
    rank: tuple[Any, ...] = ()


SILENCES = st.dictionaries(st.integers(1, 40), st.integers(1, 40), max_size=4)
"""Numbers of rows, and by how much time rises before them."""

KINDS = st.lists(st.sampled_from([0, 0, 0, 1, 1, 2]), min_size=40, max_size=40)
"""What ``places_of`` takes."""


def places_of(kinds: Sequence[int], rows: int) -> list[Place]:
    """Return a place for each row: 0 a position of its own, 1 that of the row before, 2 a further place there."""
    found: list[Place] = []
    for number, kind in enumerate(kinds[:rows]):
        before = found[-1] if found and kind else None
        if before is None:
            found.append(Place(STEP * number))
        elif kind == 1:
            found[-1] = before._replace(index=before.index or 0)
            found.append(found[-1]._replace(index=found[-1].index + 1))  # type: ignore[operator]
        else:
            found.append(Place(before.position, (before.levels[0] + MOST_ROWS if before.levels else MOST_ROWS,)))
    return found


def places_alone(rows: int) -> list[Place]:
    """Return a position for each row."""
    return [Place(STEP * number) for number in range(rows)]


def follow(
    rows: Sequence[R],
    places: Sequence[Place],
    take: Callable[[int, R, int], None],
    rise: Callable[[int, int], None],
    silences: Mapping[int, int] | None = None,
) -> None:
    """Go through rows place by place: what stands there is judged, then time rises, then what is due goes (T1b).

    Args:
        rows: the rows.
        places: of each.
        take: gets a row's number, the row and the time before its place; not those that move no time.
        rise: gets a position and the time with it.
        silences: number of a row → by how much time rises before it (T10).
    """
    time = ABSENT
    numbers = range(len(rows))
    for position, group in itertools.groupby(numbers, key=lambda number: places[number].position):
        own = [*group]
        time = _silence(time, position, (silences or {}).get(own[0], 0), rise)
        judged = [number for number in own if rows[number].key is not None and not rows[number].op]
        for number in judged:
            if not places[number].levels:
                take(number, rows[number], time)
        time = max([time, *(rows[number].ts for number in judged)])
        rise(position, time)
        for number in judged:
            if places[number].levels:
                take(number, rows[number], time)
    _silence(time, STEP * len(rows), (silences or {}).get(len(rows), 0), rise)


def _silence(time: int, position: int, silence_ms: int, rise: Callable[[int, int], None]) -> int:
    for more in range(1, silence_ms + 1) if time != ABSENT else ():
        rise(position - silence_ms + more - 1, time + more)
    return time if time == ABSENT else time + silence_ms


def changed(place: Place, ordinal: int) -> Order:
    """Return where a change of a row stands: a further one at a place of its own, unless the row shares its place."""
    if place.index is not None:
        return Order(place.position, place.levels, (place.index, ordinal))
    return Order(place.position, (*place.levels, ordinal) if ordinal else place.levels)


def silences_between(places: Sequence[Place], silences: Mapping[int, int]) -> dict[int, int]:
    """Leave out the silences that would part rows of one position."""
    count = len(places)
    firsts = {at for at in range(count) if at and places[at].position != places[at - 1].position}
    return {at: ms for at, ms in silences.items() if at in firsts or at == count}


def in_order(outputs: Sequence[tuple[Order, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return rows in the order of their places."""
    return [row for _, row in sorted(outputs, key=lambda output: output[0])]

"""How much a batch may emit while it is worked on.

Some operators make much of little: a ``select`` of long texts, a join with thousands of partners. Whoever works for many queries says how many
bytes a batch may have (``emitting_at_most``), and the maker of rows counts them as it goes (``Emitted``). A batch that is too large is given
up, and tried again with less input: results do not depend on where batches end (T3).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from engine.errors import EmissionTooLarge

_MOST: ContextVar[int | None] = ContextVar("most_emitted_bytes", default=None)


@contextmanager
def emitting_at_most(most_bytes: int | None) -> Iterator[None]:
    """Bound what is emitted in the block; None: no bound."""
    token = _MOST.set(most_bytes)
    try:
        yield
    finally:
        _MOST.reset(token)


class Emitted:
    """Counts what is made, up to the bound that is in force where this is made."""

    def __init__(self) -> None:
        self._bytes, self._most = 0, _MOST.get()

    def add(self, size: int) -> None:
        """Count so many bytes more.

        Raises:
            EmissionTooLarge: they are too many.
        """
        self._bytes += size
        if self._most is not None and self._bytes > self._most:
            raise EmissionTooLarge(f"a batch emits more than {self._most} bytes")

"""How a test's records are cut into batches. Results do not depend on it (T3, P4): that is tried with every run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

_PAUSES: Final = (0, 0, 1, 3, 8, 32)
"""How many records a query may leave unread before its next batch: tests have some ten records, and a backlog shows most."""

_LIMITS: Final = (1, 4, None)
"""About how many records a random batch reads; None: all there are."""

_RESTARTS: Final = 0.1
"""Share of random batches before which the query is stopped and started again: that must change nothing (V8, J11)."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What a query does after a record came.

    Attributes:
        max_rows: about how many records it reads; None: all there are.
        is_restarted: it is stopped and started again before.
    """

    max_rows: int | None
    is_restarted: bool


@dataclass(frozen=True, slots=True)
class Slicing:
    """When queries read while records come.

    ``record``: each record at once; ``whole``: all of them when somebody waits for the results; ``random``: every query in turns of its
    own, drawn by ``seed``: one is behind, another reads a few records, a third is restarted.
    """

    mode: Literal["record", "whole", "random"] = "record"
    seed: int = 0

    @staticmethod
    def parse(text: str) -> Slicing:
        """Read ``record``, ``whole`` or ``random:SEED``. Raises ValueError."""
        mode, _, seed = text.partition(":")
        if text in ("record", "whole"):
            return Slicing("record" if text == "record" else "whole")
        if mode == "random" and seed.isascii() and seed.isdigit():
            return Slicing("random", int(seed))
        raise ValueError(f"a slicing is record, whole or random:SEED (a number), not {text!r}")

    def turns(self, test: str, query: str) -> Iterator[Turn | None]:
        """Yield what a query does after each record, None: nothing. Differs between queries and tests, and is the same in every run."""
        chance = random.Random(f"{self.seed} {test} {query}")  # noqa: S311 - where batches end is no secret
        while True:
            yield from (None for _ in range(chance.choice(_PAUSES)))
            yield Turn(chance.choice(_LIMITS), chance.random() < _RESTARTS)

"""How a test's records are cut into batches. Results do not depend on it (T3): that can be tried, too."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

_LONGEST: Final = 8
"""Longest random batch: tests have some ten records."""

_RESTARTS: Final = 0.2
"""Share of random batches after which every query is stopped and started again: that must change nothing (V8, J11)."""

After = Literal["go on", "cut", "restart"]


@dataclass(frozen=True, slots=True)
class Slicing:
    """``record``: one record a batch; ``whole``: as many as there are; ``random``: by ``seed``, with restarts in between."""

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

    def after_each(self, test: str) -> Iterator[After]:
        """Yield what happens after each record; random cuts differ between tests and are the same in every run."""
        chance = random.Random(f"{self.seed} {test}")  # noqa: S311 - where batches end is no secret
        while True:
            if self.mode != "random":
                yield "cut" if self.mode == "record" else "go on"
                continue
            for _ in range(chance.randrange(_LONGEST)):
                yield "go on"
            yield "restart" if chance.random() < _RESTARTS else "cut"

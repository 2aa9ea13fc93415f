"""How a scenario's steps are cut into batches."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal, NamedTuple

_LONGEST = 12
"""Longest random slice: scenarios have some fifty steps."""

_RESTARTS = 0.2
"""Share of random slices after which everything is stopped and started again: that must change nothing (STRICT 22)."""


class Cut(NamedTuple):
    """Where a slice ends, and whether a restart follows that the scenario does not ask for."""

    end: int
    restarts: bool = False


@dataclass(frozen=True)
class Slicing:
    """``record``: one record a batch; ``whole``: everything at once; ``random``: by ``seed``, with restarts in between."""

    mode: Literal["record", "whole", "random"]
    seed: int = 0

    @staticmethod
    def parse(text: str) -> Slicing:
        """Read ``record``, ``whole`` or ``random:SEED``. Raises ValueError."""
        mode, _, seed = text.partition(":")
        if mode == "random" and seed.isdigit():
            return Slicing("random", int(seed))
        if text == "record":
            return Slicing("record")
        if text == "whole":
            return Slicing("whole")
        raise ValueError(f"a slicing is record, whole or random:SEED, not {text!r}")

    def __str__(self) -> str:
        return f"random:{self.seed}" if self.mode == "random" else self.mode

    def cuts(self, steps: int, scenario: str) -> list[Cut]:
        """Where the slices of so many steps end; random ones differ between scenarios and are the same in every run."""
        if self.mode == "record":
            return [Cut(end) for end in range(1, steps + 1)]
        if self.mode == "whole":
            return [Cut(steps)]
        source = random.Random(f"{self.seed} {scenario}")
        cuts = [Cut(0)]
        while (place := cuts[-1].end) < steps:
            cuts.append(Cut(min(steps, place + source.randint(1, _LONGEST)), source.random() < _RESTARTS))
        return cuts

"""How a scenario's steps are cut into batches."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

_LONGEST = 12
"""Longest random slice: scenarios have some fifty steps."""


@dataclass(frozen=True)
class Slicing:
    """``record``: one record a batch; ``whole``: everything at once; ``random``: by ``seed``."""

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

    def lengths(self, steps: int, scenario: str) -> list[int]:
        """Lengths of the slices of so many steps; random ones differ between scenarios and are the same in every run."""
        if self.mode == "record":
            return [1] * steps
        if self.mode == "whole":
            return [steps] if steps else []
        source = random.Random(f"{self.seed} {scenario}")
        lengths: list[int] = []
        while (left := steps - sum(lengths)) > 0:
            lengths.append(min(left, source.randint(1, _LONGEST)))
        return lengths

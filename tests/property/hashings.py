"""Hashes of keys that state must work with: the two that queries have, and one under which nearly all keys meet."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from hypothesis import strategies as st

from engine.frames.hashing import UNSEEDED, KeyHash
from engine.state.sorted.keys import tells_keys


class FewHashes(KeyHash):
    """Two hashes for all keys that are not told by their hash anyway."""

    def of(self, frame: pl.DataFrame, columns: Sequence[str]) -> pl.Series:
        hashes = super().of(frame, columns)
        return hashes if tells_keys([frame.schema[name] for name in columns]) else hashes & 1


def hashings() -> st.SearchStrategy[KeyHash]:
    return st.sampled_from([UNSEEDED, KeyHash(0x9D2C_5680_1B87_3F11), FewHashes()])

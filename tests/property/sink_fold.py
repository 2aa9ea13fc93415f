"""What the sink of an unversioned table makes of a batch's changes: the last one per key (T3)."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl


def folded(changes: pl.DataFrame, key: Sequence[str]) -> list[str]:
    """The last change of each key with all its columns but its rank, as comparable text."""
    changes = changes.drop("_rank", strict=False)
    last = changes.unique(subset=list(key), keep="last", maintain_order=True)
    return sorted(map(repr, last.select(sorted(last.columns)).to_dicts()))


def assert_folds_to(folding: pl.DataFrame, full: pl.DataFrame, key: Sequence[str]) -> None:
    """Check that the operator which folds gives what the sink keeps of every change, and nothing twice."""
    assert folding.columns == full.columns
    assert folding.select(key).is_duplicated().sum() == 0
    assert folded(folding, key) == folded(full, key)
    assert folding["_pos"].to_list() == sorted(folding["_pos"].to_list())

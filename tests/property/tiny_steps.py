"""Merges of a few rows, so that small inputs make what is usual with millions: runs of several segments, and merges of these."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from engine.state.sorted import segment_list


@contextmanager
def tiny_steps(step_rows: int) -> Iterator[None]:
    """Let structures that are made meanwhile merge so few rows at once, as soon as there are two runs of a size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_list, "MERGED_AT_ONCE", step_rows)
        patch.setattr(segment_list, "MIN_MERGED", 2)
        patch.setattr(segment_list, "TINY_ROWS", 1)
        yield

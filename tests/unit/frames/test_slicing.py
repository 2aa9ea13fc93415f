"""Frames cut by rows and by bytes: every row is in one part, in order, and no part is too large."""

from __future__ import annotations

import itertools

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from engine.frames.arrow_frames import decode_frame
from engine.frames.row_bytes import RowBytes
from engine.frames.slicing import ends_within, slices
from engine.log import storage as log
from engine.log.sequence import Numbered
from engine.log.sequences import _batches


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 20), st.integers(1, 80))
def test_parts_are_as_long_as_both_bounds_allow(sizes: list[int], max_rows: int, max_bytes: int) -> None:
    ends = ends_within(np.array(sizes, np.int64), max_rows, max_bytes)
    parts = [sizes[start:end] for start, end in itertools.pairwise([0, *ends])]
    assert [size for part in parts for size in part] == sizes
    assert all(part and len(part) <= max_rows and (len(part) == 1 or sum(part) <= max_bytes) for part in parts)
    for part, behind in itertools.pairwise(parts):
        assert len(part) == max_rows or sum(part) + behind[0] > max_bytes


@given(st.lists(st.one_of(st.none(), st.integers(0, 40).map("x".__mul__)), max_size=40), st.integers(1, 9), st.integers(20, 400))
def test_rows_are_cut_where_they_are_large_not_where_their_mean_says(
    texts: list[str | None], max_rows: int, max_bytes: int
) -> None:
    frame = pl.DataFrame({"t": texts, "n": [[text, text] for text in texts]}, schema={"t": pl.String, "n": pl.List(pl.String)})
    parts = list(slices(frame, max_rows, max_bytes))
    assert pl.concat(parts).equals(frame)
    for part in parts:
        is_small = part.estimated_size() <= max_bytes or RowBytes(part.schema).of(part).sum() <= max_bytes
        assert part.height <= max_rows
        assert part.height <= 1 or is_small


def test_few_large_rows_among_many_small_ones_make_small_log_batches() -> None:
    large = log.BATCH_BYTES // 4
    texts = [*(["x"] * 3_000), *(["y" * large] * 8), *(["z"] * 3_000)]
    frame = pl.DataFrame({"_ts": np.zeros(len(texts), np.int64), "_op": np.zeros(len(texts), np.int8), "t": texts})
    batches = log.encode_batches(frame, 0)
    assert sum(batch.rows for batch in batches) == len(texts)
    assert max(len(batch.payload) for batch in batches) <= log.BATCH_BYTES + 300_000  # Arrow's own, and the columns of the log
    assert [text for batch in batches for text in decode_frame(batch.payload)["t"].str.head(1)] == [text[:1] for text in texts]


def test_a_block_of_all_tasks_has_the_bytes_of_one_batch() -> None:
    large = log.BATCH_BYTES // 4
    schema = {"_ts": pl.Int64, "_op": pl.Int8, "t": pl.String}
    tasks = [
        pl.DataFrame([(0, 0, letter * size) for size in (1, large, large, large)], schema=schema, orient="row") for letter in "ab"
    ]
    order = [np.array([0, 2, 4, 6]), np.array([1, 3, 5, 7])]
    numbers = Numbered(order, [np.zeros(4, np.int64)] * 2, 0)
    blocks: dict[int | None, int] = {}
    for _, batch in _batches(tasks, numbers, 100, 0):
        blocks[batch.sequence] = blocks.get(batch.sequence, 0) + len(batch.payload)
    assert list(blocks) == [100, 105]
    assert max(blocks.values()) <= log.BATCH_BYTES + 10_000

"""Few changes of a derived log are written like many."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import numpy as np
import polars as pl
import pytest

from app.following.change_log import encode_changes, few_changes, numbered_frame
from app.following.followed import Followed
from engine.expressions.types.types import Schema, parse_type
from engine.frames.frames import HEAD
from engine.log.storage import encode_batch
from engine.plan.model import RelationSchema

COLUMNS = Schema((("key", parse_type("string")), ("n", parse_type("bigint"))))
RELATION = RelationSchema("t", "table", COLUMNS, ("key",), None, None, None, None, None)
FOLLOWED = Followed("t", "table", 1, True, "i", None, None, RELATION, None, None, uuid4(), None)

Block = tuple[int, int, int, int, bytes]


def block(sequence: int, rows: int, **more: Any) -> Block:
    """A block of rows from a number on, of which each third is a delete."""
    numbers = np.arange(sequence, sequence + rows)
    frame = pl.DataFrame(
        {
            "_ts": numbers * 10,
            "_op": (numbers % 3 == 0).astype(np.int8),
            "key": [f"k{n}" for n in numbers],
            "n": numbers,
            HEAD: numbers,
            **more,
        }
    )
    return (sequence, rows, 0, sequence + 1_000, encode_batch(frame, 5).payload)


@pytest.mark.parametrize(("start", "end"), [(10, 20), (12, 17), (10, 11), (19, 20), (12, 13)])
def test_few_changes_are_written_like_many(start: int, end: int) -> None:
    blocks = [block(10, 3), block(13, 7)]
    wanted = encode_changes(FOLLOWED, 0, numbered_frame(FOLLOWED, blocks, start, end), end, has_text_numbers=True)
    assert (wanted.offsets, wanted.end) == (list(range(start, end)), end)
    assert few_changes(FOLLOWED, blocks, start, end, has_text_numbers=True) == wanted


@pytest.mark.parametrize(
    "special", [[block(10, 100)], [block(10, 2, **{"$replayed": [True, False]})], [(10, 4, *block(10, 2)[2:])]]
)
def test_what_has_something_special_is_left_to_frames(special: list[Block]) -> None:
    assert few_changes(FOLLOWED, special, 10, 12, has_text_numbers=False) is None

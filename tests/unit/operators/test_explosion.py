"""Rows of arrays' elements: where they stand."""

from __future__ import annotations

import polars as pl

from engine.expressions.types.types import STRING, ColumnType, Schema
from engine.frames.frames import SERVICE_COLUMNS
from engine.frames.places import is_further
from engine.operators.operators import BatchTime
from engine.operators.rows.explosion import Exploder
from engine.plan.operators.explosion import Explosion

SCHEMA = Schema((("k", STRING), ("tags", ColumnType("array", element=STRING))))


def test_each_further_element_of_a_record_has_a_place_of_its_own() -> None:
    rows = [(0, 5, 0, 0, 0, None, "a", ["x", "y", "z"]), (3, 6, 0, 0, 1, None, "b", []), (7, 7, 0, 0, 2, None, "c", ["w"])]
    frame = pl.DataFrame(rows, schema={**SERVICE_COLUMNS, **SCHEMA.polars()}, orient="row")
    made = Exploder(Explosion(("k",), (("tag", "tags"),)), SCHEMA).process(frame, {}, BatchTime()).frame
    assert made.select("_pos", "k", "tag").rows() == [(0, "a", "x"), (0, "a", "y"), (0, "a", "z"), (7, "c", "w")]
    further = is_further(made["_rank"])
    assert further is not None
    assert further.tolist() == [False, True, True, False]
    assert made["_rank"][1:3].is_sorted()

"""Rows whose texts expressions make: in parts, counted, and no longer than a record may be."""

from __future__ import annotations

import polars as pl
import pytest

from engine.errors import EmissionTooLarge
from engine.expressions.syntax import reference
from engine.expressions.types.types import BIGINT, STRING, Schema
from engine.frames.frames import RANK, SERVICE_COLUMNS
from engine.operators.emission import emitting_at_most
from engine.operators.operators import BatchTime, OperatorOutput
from engine.operators.rows.row_operators import RowProjection
from engine.plan.operators.row_operators import Projection

SCHEMA = Schema((("n", BIGINT), ("t", STRING)))
LONG = "replace(replace(t, 'a', 'aaaaaaaaaa'), 'a', 'aaaaaaaaaa')"


def frame(*texts: str | None) -> pl.DataFrame:
    rows = pl.DataFrame({"n": range(len(texts)), "t": texts}, schema=SCHEMA.polars())
    return rows.with_columns(pl.lit(None if name == RANK else 0, dtype).alias(name) for name, dtype in SERVICE_COLUMNS.items())


def select(columns: int, *texts: str | None, text: str = LONG) -> OperatorOutput:
    spec = Projection((("n", "n"), *((f"c{number}", text) for number in range(columns))))
    return RowProjection(spec, SCHEMA, is_forced_known=False).process(frame(*texts), {}, BatchTime())


def lengths(output: OperatorOutput, column: str) -> list[int | None]:
    return output.frame.select(pl.col(column).str.len_bytes()).to_series().to_list()


def test_rows_that_are_made_in_parts_are_those_made_at_once() -> None:
    texts = ["a" * (number % 50) for number in range(20_000)]
    output = select(3, *texts)
    assert output.frame["n"].to_list() == list(range(20_000))
    assert lengths(output, "c2") == [len(text) * 100 for text in texts]
    assert output.counters == {}


def test_a_row_whose_texts_are_longer_than_a_record_may_be_loses_them_and_is_counted_once() -> None:
    output = select(20, "a" * 5_000, "a" * 9_000, None, "a" * 9_000)
    assert lengths(output, "c0") == [500_000, None, None, None], "twenty of 900,000 bytes are more than 16 MiB"
    assert lengths(output, "c19") == [500_000, None, None, None]
    assert output.frame["n"].to_list() == [0, 1, 2, 3]
    assert output.counters == {("select", "text_too_long"): 2}


def test_what_a_row_loses_does_not_depend_on_those_beside_it() -> None:
    texts = ["a" * 9_000, "a", "a" * 5_000, "a" * 9_000, None]
    together = select(20, *texts)
    alone = pl.concat([select(20, text).frame.drop("n") for text in texts])
    assert together.frame.drop("n").equals(alone)


def test_given_texts_are_kept_however_long() -> None:
    output = select(2, "b" * (12 << 20), text=reference("t"))
    assert lengths(output, "c1") == [12 << 20]
    assert output.counters == {}


def test_a_batch_that_makes_too_much_is_given_up_on_the_way() -> None:
    with emitting_at_most(10 << 20), pytest.raises(EmissionTooLarge):
        select(5, *["a" * 5_000] * 20)
    with emitting_at_most(100 << 20):
        assert select(5, *["a" * 5_000] * 20).frame.height == 20

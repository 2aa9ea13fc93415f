"""Collections end where their room ends (P12), by number and by bytes, however their parts were merged."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import polars as pl
import pytest

from engine.expressions.aggregates.aggregates import MAX_TOP_K
from engine.expressions.limits import MAX_COLLECTED_BYTES, MAX_COLLECTED_VALUES, MAX_DISTINCT_BYTES, MAX_DISTINCT_VALUES
from engine.expressions.types.types import BIGINT, STRING, ColumnType, Schema, parse_type
from engine.frames.frames import SERVICE_COLUMNS
from engine.operators.aggregation.aggregate import Aggregates
from engine.operators.aggregation.running_aggregate import RunningAggregator
from engine.operators.operators import BatchTime
from engine.plan.operators.aggregation import AggregateColumn, RunningAggregation
from engine.state.segments.memory import MemorySegmentStore
from engine.state.sorted.running import Groups

LONG = MAX_COLLECTED_BYTES // 4
"""Characters of a text of which four fill a collection."""


def made(function: str, values: list[Any], type_: ColumnType) -> tuple[Aggregates, pl.DataFrame]:
    """One partial per value."""
    limit = MAX_TOP_K if function == "top_k" else None
    aggregates = Aggregates([AggregateColumn("out", function, "x", limit)], Schema((("x", type_),)))  # type: ignore[arg-type]
    frame = pl.DataFrame({"x": pl.Series(values, dtype=type_.polars)})
    return aggregates, pl.DataFrame(aggregates.lift(frame, pl.Series(range(len(values)), dtype=pl.Int64)))


def merged(aggregates: Aggregates, partials: pl.DataFrame, owners: Any) -> pl.DataFrame:
    grouped = partials.group_by(pl.Series("owner", owners), maintain_order=True)
    return aggregates.run_until_idle(grouped.agg(aggregates.merge(partials.columns)).drop("owner"))


def merged_in_every_way(aggregates: Aggregates, partials: pl.DataFrame) -> list[tuple[Any, list[str]]]:
    """The result of all values, and what is counted: merged at once, in order, interleaved and back to front."""
    count = partials.height
    found = []
    for owners in (np.zeros(count), np.arange(count) // max(count // 3, 1), np.arange(count) % 3, -np.arange(count) // 2):
        parts = merged(aggregates, partials, owners)
        whole = merged(aggregates, parts[::-1], np.zeros(parts.height))
        columns, marks = aggregates.results(whole)
        found.append((columns[0].to_list()[0], [reason for reason, mask in marks.masks if mask.all()]))
    return found


@pytest.mark.parametrize("function", ["collect_list", "collect_set"])
def test_a_collection_has_the_first_values_in_order(function: str) -> None:
    numbers = list(range(MAX_COLLECTED_VALUES + 50, 0, -1))
    aggregates, partials = made(function, numbers, BIGINT)
    assert merged_in_every_way(aggregates, partials) == [(numbers[:MAX_COLLECTED_VALUES], ["collection_full"])] * 4


def test_a_histogram_has_the_first_texts() -> None:
    texts = [f"{i % (MAX_COLLECTED_VALUES + 50):05}" for i in range(2 * MAX_COLLECTED_VALUES, 0, -1)]
    aggregates, partials = made("histogram", texts, STRING)
    expected = [{"key": text, "value": texts.count(text)} for text in sorted(set(texts))[:3]]
    for found, reasons in merged_in_every_way(aggregates, partials):
        assert (found[:3], len(found), reasons) == (expected, MAX_COLLECTED_VALUES, ["collection_full"])


@pytest.mark.parametrize("function", ["collect_list", "collect_set", "histogram", "top_k"])
def test_a_collection_of_long_texts_is_full_at_its_bytes(function: str) -> None:
    texts = [letter * LONG for letter in ("hgfedcba" if function == "top_k" else "abcdefgh")]
    aggregates, partials = made(function, texts, STRING)
    for found, reasons in merged_in_every_way(aggregates, partials):
        shown = [each["key"] for each in found] if function == "histogram" else found
        assert [text[:2] for text in shown] == [text[:2] for text in texts[:4]]
        assert reasons == ["collection_full"]
    columns, marks = aggregates.running(partials, Groups.of(pl.DataFrame({"group": [0] * 8})))
    assert columns[0].list.len().to_list() == [1, 2, 3, 4, 4, 4, 4, 4]
    assert [(reason, mask.tolist()) for reason, mask in marks.masks] == [("collection_full", [False] * 3 + [True] * 5)]


def test_a_collection_of_nested_values_is_full_at_its_bytes() -> None:
    values = [{"t": letter * LONG} for letter in "abcdef"]
    aggregates, partials = made("collect_list", values, parse_type("struct<t: string>"))
    assert [(len(found), reasons) for found, reasons in merged_in_every_way(aggregates, partials)] == [
        (4, ["collection_full"])
    ] * 4


def test_a_value_that_passes_the_bound_is_collected_whole_and_is_the_last() -> None:
    aggregates, partials = made("collect_list", ["a", "b" * 3 * MAX_COLLECTED_BYTES, "c"], STRING)
    assert [[len(text) for text in found] for found, _ in merged_in_every_way(aggregates, partials)] == [
        [1, 3 * MAX_COLLECTED_BYTES]
    ] * 4


def test_too_many_different_values_have_no_number() -> None:
    aggregates, partials = made("count_distinct", [*range(MAX_DISTINCT_VALUES), 0, 1], BIGINT)
    assert merged_in_every_way(aggregates, partials) == [(None, ["collection_full"])] * 4
    aggregates, partials = made("count_distinct", [*range(MAX_DISTINCT_VALUES - 1), 0, 1], BIGINT)
    assert merged_in_every_way(aggregates, partials) == [(MAX_DISTINCT_VALUES - 1, [])] * 4


def test_different_texts_of_too_many_bytes_have_no_number() -> None:
    texts = [letter * (MAX_DISTINCT_BYTES // 4) for letter in "abcd"]
    aggregates, partials = made("count_distinct", texts, STRING)
    assert merged_in_every_way(aggregates, partials) == [(None, ["collection_full"])] * 4
    columns, _ = aggregates.running(partials, Groups.of(pl.DataFrame({"group": [0] * 4})))
    assert columns[0].to_list() == [1, 2, 3, None]


def test_what_can_be_taken_out_again_is_kept_and_a_full_histogram_has_room_again() -> None:
    count = MAX_COLLECTED_VALUES + 2
    aggregates = Aggregates([AggregateColumn("out", "histogram", "x")], Schema((("x", STRING),)), with_undo=True)
    texts = [f"{i:05}" for i in range(count)]
    frame = pl.DataFrame({"x": [*texts, *texts[:3]]})
    signs = np.repeat([1, -1], [count, 3])
    partials = pl.DataFrame(aggregates.lift(frame, pl.Series(range(count + 3), dtype=pl.Int64), signs))
    before = merged(aggregates, partials[:count], np.zeros(count))
    after = merged(aggregates, pl.concat([before, partials[count:]]), np.zeros(4))
    for state, shown, is_full in ((before, texts[:-2], True), (after, texts[3:], False)):
        columns, marks = aggregates.results(state)
        assert [each["key"] for each in columns[0].to_list()[0]] == shown
        assert bool(marks.masks) == is_full


def test_a_full_collection_stops_growing_also_over_batches_and_restarts() -> None:
    spec = RunningAggregation("r", (("k", "s.k"),), (AggregateColumn("out", "collect_list", "s.t"),), is_folded=True)
    schema = Schema((("s.k", STRING), ("s.t", STRING)))
    store = MemorySegmentStore()
    operator = RunningAggregator(spec, schema, None, store)
    columns = {**SERVICE_COLUMNS, **schema.polars()}
    for batch in range(64):
        row = (batch, 0, 0, 0, batch, None, "k", f"{batch:02}" * (LONG // 2))
        output = operator.process(pl.DataFrame([row], schema=columns, orient="row"), {}, BatchTime())
        assert [text[:2] for text in output.frame["out"][0]] == ["00", "01", "02", "03"][: batch + 1]
        assert output.counters.get(("r", "collection_full"), 0) == (batch >= 3)
        state = json.loads(json.dumps(operator.snapshot()))
        store.purge()
        operator = RunningAggregator(spec, schema, state, store)
    held = sum(store.load(segment).estimated_size() for segment in store.segment_ids)
    assert held < 4 * MAX_COLLECTED_BYTES  # of 16

"""Windows in ten-line cases; the corpora and the property tests cover the rest."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl
import pytest

from engine.expressions.types.types import BIGINT, DOUBLE, STRING, Schema
from engine.frames.places import begins_place, place_order
from engine.operators.operators import OperatorOutput
from engine.operators.pending.spans import MAX_SPANS, Span
from engine.operators.windows.hopping import WindowAggregator
from engine.operators.windows.window_grid import WindowGrid, expand, node_windows
from engine.plan.operators.aggregation import AggregateColumn
from engine.plan.operators.windows import WindowAggregation
from engine.state.segments.memory import MemorySegmentStore
from tests.lone_operator import LoneOperator

SCHEMA = Schema((("s.key", STRING), ("s.group", DOUBLE), ("s.x", BIGINT)))
ROWS = (AggregateColumn("rows", "count", None),)
SUM = (AggregateColumn("total", "sum", "s.x"),)


def spec(emit: str, size: int = 10, advance: int | None = None, grace: int = 0, **changes: Any) -> WindowAggregation:
    values = {"group": (("key", "s.key"),), "aggregates": ROWS, **changes}
    return WindowAggregation(name="w", size_ms=size, advance_ms=advance or size, grace_ms=grace, emit=emit, **values)  # type: ignore[arg-type]


def operator(what: WindowAggregation, store: MemorySegmentStore | None = None) -> LoneOperator:
    return LoneOperator(WindowAggregator(what, SCHEMA, None, store or MemorySegmentStore()))


def edited(windows: LoneOperator, what: WindowAggregation, store: MemorySegmentStore) -> LoneOperator:
    return windows.restarted(WindowAggregator(what, SCHEMA, windows.operator.snapshot(), store))


def frame(
    *rows: tuple[str | None, int], x: int | None = 1, op: int = 0, group: list[float] | None = None, first_pos: int = 0
) -> pl.DataFrame:
    """Rows of (key, event time)."""
    count = len(rows)
    return pl.DataFrame(
        {
            "_pos": pl.Series(range(first_pos, first_pos + count), dtype=pl.Int64),
            "_ts": pl.Series([ts for _, ts in rows], dtype=pl.Int64),
            "_op": pl.Series([op] * count, dtype=pl.Int8),
            "_key_hash": pl.Series([None if key is None else 0 for key, _ in rows], dtype=pl.UInt64),
            "_offset": pl.Series(range(first_pos, first_pos + count), dtype=pl.Int64),
            "s.key": pl.Series([key for key, _ in rows], dtype=pl.String),
            "s.group": pl.Series(group or [0.0] * count, dtype=pl.Float64),
            "s.x": pl.Series([x] * count, dtype=pl.Int64),
        }
    )


def results(output: OperatorOutput, column: str = "rows") -> list[tuple[Any, ...]]:
    return output.frame.select("key", pl.col("window_start").dt.epoch("ms"), column, "_ts", "_pos").rows()


def test_null_keys_and_null_values_are_counted_and_wait_for_nothing() -> None:
    windows = operator(spec("final"))
    counters = windows.process(frame((None, 1000))).counters | windows.process(frame(("a", 1000), op=1)).counters
    assert counters == {("w", "null_key"): 1, ("w", "null_value"): 1}
    assert windows.operator.due_ms is None
    assert windows.process(frame(("a", 1))).counters == {}


def test_a_null_key_with_a_null_value_is_counted_once() -> None:
    assert operator(spec("final")).process(frame((None, 5), op=1)).counters == {("w", "null_key"): 1}


def test_a_window_closes_at_the_record_whose_time_reaches_its_end_plus_grace() -> None:
    output = operator(spec("final", grace=5)).process(frame(("a", 3), ("b", 14), ("a", 7), ("b", 15), ("b", 40)))
    assert results(output) == [("a", 0, 2, 7, 3), ("b", 10, 2, 15, 4)]


def test_rows_of_one_place_are_judged_by_the_time_before_it_and_a_further_one_by_the_time_with_it() -> None:
    shared = frame(("a", 100), ("a", 3), ("a", 4)).with_columns(pl.lit(7, pl.Int64).alias("_pos"))
    shared = shared.with_columns(pl.Series("_rank", [b"\0\1a\1", b"\0\1b\1", b"\1\0\0\0\1\0"]))
    output = operator(spec("final")).process(shared)
    assert results(output) == [("a", 0, 1, 3, 7)]
    assert output.late.select("event_time_ms", "stream_time_ms").rows() == [(4, 100)]


def test_each_further_change_of_a_record_has_a_place_of_its_own_and_those_of_rows_that_share_one_stay() -> None:
    alone = operator(spec("changes", size=10, advance=5)).process(frame(("a", 7), ("b", 7)))
    assert begins_place(alone.frame).tolist() == [True] * 4
    assert place_order(alone.frame[::-1]).tolist() == [3, 2, 1, 0]
    shared = frame(("a", 7), ("b", 7)).with_columns(pl.lit(7, pl.Int64).alias("_pos"))
    shared = shared.with_columns(pl.Series("_rank", [b"\0\1a\1", b"\0\1b\1"]))
    output = operator(spec("changes", size=10, advance=5)).process(shared)
    assert output.frame["key"].to_list() == ["a", "a", "b", "b"]
    assert [rank[0] for rank in output.frame["_rank"].to_list()] == [0] * 4
    assert output.frame["_rank"].n_unique() == 4


def test_however_many_open_windows_stand_apart_a_few_exact_spans_tell_of_them() -> None:
    windows = operator(spec("final", grace=1_000_000))
    windows.process(frame(*(("a", window * 30) for window in range(5_000))))
    windows.process(frame(*(("b", window * 30) for window in range(4_990, 5_010)), first_pos=5_000))
    spans = windows.operator.waiting["w"]
    assert len(spans) <= MAX_SPANS
    assert all(span.least == span.most == (span.high - span.low) // 30 + 1 for span in spans)
    assert (spans[0].low, spans[-1].high, sum(span.most for span in spans)) == (10, 150_280, 5_010)


def test_a_few_runs_of_open_windows_are_told_one_by_one() -> None:
    windows = operator(spec("final", size=10, advance=5, grace=1_000))
    assert windows.operator.waiting == {"w": []}
    windows.process(frame(("a", 12), ("b", 300), ("a", 21)))
    assert windows.operator.waiting == {"w": [Span(15, 30, 4, 4), Span(305, 310, 2, 2)]}


def test_a_late_record_is_counted_per_window_and_kept_once() -> None:
    windows = operator(spec("final", size=10, advance=5))
    output = windows.process(frame(("a", 100), ("a", 12)))
    assert output.counters == {("w", "window_closed"): 2}
    assert output.late.select("input", "reason", "event_time_ms", "stream_time_ms", "offset").rows() == [
        ("w", "window_closed", 12, 100, 1)
    ]


def test_a_record_may_be_late_for_one_of_its_windows_only() -> None:
    output = operator(spec("changes", size=10, advance=5)).process(frame(("a", 15), ("a", 14)))
    assert results(output) == [("a", 10, 1, 15, 0), ("a", 15, 1, 15, 0), ("a", 10, 2, 15, 1)]
    assert output.counters == {("w", "window_closed"): 1}


def test_output_columns_are_the_group_the_bounds_and_the_aggregates() -> None:
    windows = operator(spec("final", size=60_000))
    row = windows.process(frame(("a", 5), ("a", 60_000))).frame
    assert windows.operator.schema.names == ("key", "window_start", "window_end", "rows")
    assert row.select(windows.operator.schema.names).schema == pl.Schema(windows.operator.schema.polars())
    assert row.row(0, named=True)["window_end"] == datetime(1970, 1, 1, 0, 1, tzinfo=UTC)


def test_without_a_group_everything_is_one_group() -> None:
    output = operator(spec("final", group=())).process(frame(("a", 1), ("b", 2), (None, 3), ("a", 10)))
    assert output.frame["rows"].to_list() == [3]


def test_both_zeros_are_one_group() -> None:
    windows = operator(spec("final", group=(("key", "s.group"),)))
    output = windows.process(frame(("a", 1), ("a", 2), ("a", 10), group=[-0.0, 0.0, 1.0]))
    assert [(str(row[0]), row[2]) for row in results(output)] == [("0.0", 2)]


def test_a_sum_beyond_bigint_is_null_and_counted_per_result() -> None:
    final = operator(spec("final", aggregates=SUM)).process(frame(("a", 1), ("a", 2), ("a", 10), x=2**63 - 1))
    changes = operator(spec("changes", aggregates=SUM)).process(frame(("a", 1), ("a", 2), ("a", 3), x=2**63 - 1))
    assert final.frame["total"].to_list() == [None]
    assert final.counters == {("w", "sum_overflow"): 1}
    assert changes.frame["total"].to_list() == [2**63 - 1, None, None]
    assert changes.counters == {("w", "sum_overflow"): 2}


def test_having_that_is_null_does_not_match() -> None:
    output = operator(spec("final", aggregates=SUM, having="total > 0")).process(frame(("a", 1), ("a", 10), x=None))
    assert output.frame.is_empty()


def test_a_deleted_change_keeps_its_key_and_loses_its_aggregates() -> None:
    output = operator(spec("changes", having="rows < 2")).process(frame(("a", 1), ("a", 2), ("a", 3)))
    assert output.frame.select("key", "rows", "_op").rows() == [("a", 1, 0), ("a", None, 1)]


def test_a_longer_grace_does_not_open_a_closed_window_again() -> None:
    store = MemorySegmentStore()
    windows = operator(spec("final"), store)
    windows.process(frame(("a", 1), ("a", 10)))
    longer = edited(windows, spec("final", grace=1000), store)
    output = longer.process(frame(("a", 2), ("a", 2000), first_pos=2))
    assert output.counters == {("w", "window_closed"): 1}
    assert results(output) == [("a", 10, 1, 10, 3)]


def test_a_shorter_grace_closes_what_is_due_at_the_next_record() -> None:
    store = MemorySegmentStore()
    windows = operator(spec("final", grace=1000), store)
    windows.process(frame(("a", 1), ("a", 50)))
    shorter = edited(windows, spec("final"), store)
    assert results(shorter.process(frame())) == []
    output = shorter.process(frame(("b", 5), first_pos=2))
    assert results(output) == [("a", 0, 1, 1, 2)]
    assert output.counters == {("w", "window_closed"): 1}


def test_a_shorter_grace_closes_what_is_due_at_once_on_request() -> None:
    store = MemorySegmentStore()
    windows = operator(spec("final", grace=1000), store)
    windows.process(frame(("a", 1), ("a", 50)))
    shorter = edited(windows, spec("final"), store)
    assert shorter.operator.due_ms == 10
    assert results(shorter.process(frame(), first=7, is_release=True)) == [("a", 0, 1, 1, 7)]
    assert shorter.operator.due_ms == 60


def test_segments_go_when_their_last_window_has_closed() -> None:
    store = MemorySegmentStore()
    windows = operator(spec("final"), store)
    for i in range(200):
        windows.process(frame(("a", 10 * i), first_pos=i))
        windows.operator.snapshot()
        store.purge()
    assert len(store.segment_ids) == 1
    assert windows.operator.buffered_rows == 1


def test_one_record_batches_leave_few_segments() -> None:
    store = MemorySegmentStore()
    windows = operator(spec("final", size=1_000_000), store)
    for i in range(500):
        windows.process(frame((f"key{i}", i), first_pos=i))
        windows.operator.snapshot()
        store.purge()
    assert windows.operator.buffered_rows == 500
    assert len(store.segment_ids) < 12


def test_a_change_reads_the_rows_of_all_segments() -> None:
    windows = operator(spec("changes", size=1_000_000))
    counts = [windows.process(frame(("a", i), (f"b{i}", i), first_pos=2 * i)).frame["rows"].to_list() for i in range(60)]
    assert counts == [[i + 1, 1] for i in range(60)]


def test_thousands_of_windows_per_record_keep_few_partials() -> None:
    windows = operator(spec("final", size=3_600_000, advance=1000))
    windows.process(frame(*((f"key{i % 100}", 1_000_000 * i) for i in range(4))))
    assert windows.operator.buffered_rows < 4 * 2 * 12


def test_a_jump_closes_a_million_windows_in_order() -> None:
    windows = operator(spec("final", size=3_600_000, advance=1000))
    output = windows.process(frame(*((f"key{i}", 3_600_000) for i in range(300)), ("key0", 20_000_000))).frame
    starts = output["window_start"].dt.epoch("ms")
    assert (output.height, output["rows"].sum()) == (300 * 3600, 300 * 3600)
    assert starts.is_sorted()
    assert (starts[0], starts[-1]) == (1000, 3_600_000)


def test_groups_that_share_a_hash_stay_apart() -> None:
    windows = operator(spec("final"))
    partials = pl.DataFrame(
        {"_node": [0, 0], "_hash": [7, 7], "g0": ["a", "b"], "_first": [0, 1], "_latest": [1, 2], "a0.n": [1, 1]}
    )
    assert windows.operator._merge_nodes(partials).height == 2


@pytest.mark.parametrize(("size", "advance"), [(1, 1), (10, 5), (12, 5), (7, 1), (1440, 1)])
def test_nodes_stand_for_exactly_their_windows(size: int, advance: int) -> None:
    grid = WindowGrid(size, advance, 0)
    first, last = grid.windows_of(np.arange(0, 3 * size, max(1, size // 20)))
    rows, nodes = grid.nodes(first, last)
    inner, windows = expand(*node_windows(nodes))
    found = sorted(zip(rows[inner].tolist(), windows.tolist(), strict=True))
    assert found == sorted(zip(*(column.tolist() for column in expand(first, last)), strict=True))
    assert len(nodes) <= len(first) * max(1, 2 * grid.windows_per_record.bit_length() - 1)

"""Aggregation over a table equals aggregating its rows afresh after every change, under any slicing and any restart (A1, A2)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.frames.frames import SERVICE_COLUMNS
from engine.frames.hashing import UNSEEDED, KeyHash
from engine.operators.aggregation.table_aggregate import TableAggregator, TableRegrouper
from engine.operators.operators import BatchTime, Operator
from engine.plan.operators.aggregation import TableAggregation, TableRegrouping
from engine.state.segments.memory import MemorySegmentStore
from tests.batch_times import RunningTimes
from tests.examples import examples
from tests.late_frames import DESCRIBED
from tests.property import aggregate_model as model
from tests.property.hashings import hashings
from tests.property.sink_fold import assert_folds_to
from tests.property.task_shares import in_place_order, merged, rows_of, shares

COLUMNS = (*model.UNDOABLE, *model.IN_ORDER)
RETENTIONS = st.sampled_from([None, 0, 3, 10, 100])


def build(
    retention_ms: int | None, having: str | None, state: dict[str, Any], store: MemorySegmentStore
) -> tuple[Operator, Operator]:
    columns = tuple(name for name in model.SCHEMA if name not in ("s.key", "s.group"))
    regrouping = TableRegrouping("t", ("s.key",), retention_ms, ("s.group",), columns)
    regrouper = TableRegrouper(regrouping, model.SCHEMA, state.get("regrouper"), store)
    aggregation = TableAggregation("t", (("group", "s.group"),), COLUMNS, having)
    return regrouper, TableAggregator(aggregation, regrouper.schema, state.get("aggregator"), store)


def run(
    rows: Sequence[model.Row],
    retention_ms: int | None,
    cuts: Sequence[int],
    having: str | None = None,
    *,
    restarts: bool = False,
    hashing: KeyHash = UNSEEDED,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, int]]:
    """Chain both steps; returns what they emitted, the late rows and the counters."""
    store = MemorySegmentStore(hashing)
    regrouper, aggregator = build(retention_ms, having, {}, store)
    emitted: list[dict[str, Any]] = []
    late: list[dict[str, Any]] = []
    counters: dict[str, int] = {}
    times = RunningTimes()
    for start, end in model.slices(rows, cuts):
        batch = model.put_frame(rows[start:end], start)
        messages = regrouper.process(batch, {}, times.at([batch], is_table=True))
        output = aggregator.process(messages.frame, {}, BatchTime())
        assert messages.frame.columns == [*SERVICE_COLUMNS, *regrouper.schema.names]
        assert output.frame.columns == [*SERVICE_COLUMNS, *aggregator.schema.names]
        assert in_place_order(messages.frame)
        emitted += output.frame.to_dicts()
        late += messages.late.select(DESCRIBED).to_dicts()
        for (_, reason), count in (*messages.counters.items(), *output.counters.items()):
            counters[reason] = counters.get(reason, 0) + count
        if restarts:
            state = json.loads(json.dumps({"regrouper": regrouper.snapshot(), "aggregator": aggregator.snapshot()}))
            store.purge()
            regrouper, aggregator = build(retention_ms, having, state, store)
    return emitted, late, dict(sorted(counters.items()))


@settings(max_examples=examples(60), deadline=None)
@given(rows=model.ROWS, retention_ms=RETENTIONS, cuts=model.CUTS, restarts=st.booleans(), hashing=hashings())
def test_any_slicing_equals_aggregating_the_rows_afresh(
    rows: list[model.Row], retention_ms: int | None, cuts: list[int], restarts: bool, hashing: KeyHash
) -> None:
    expected = model.TableGroups(model.UNDOABLE, retention_ms)
    emitted, late, counters = run(rows, retention_ms, cuts, restarts=restarts, hashing=hashing)
    assert [model.plain(row) for row in emitted] == expected.run(rows)
    counters.pop("sum_overflow", None)
    assert counters == dict(expected.counters)
    assert len(late) == counters.get("table_history_expired", 0)


@settings(max_examples=examples(60), deadline=None)
@given(rows=model.ROWS, retention_ms=RETENTIONS, cuts=model.CUTS)
def test_slices_and_restarts_change_no_bit_no_late_row_and_no_counter(
    rows: list[model.Row], retention_ms: int | None, cuts: list[int]
) -> None:
    assert repr(run(rows, retention_ms, cuts, restarts=True)) == repr(run(rows, retention_ms, []))


@settings(max_examples=examples(60), deadline=None)
@given(rows=model.ROWS, retention_ms=RETENTIONS, cuts=model.CUTS, most=st.integers(1, 2))
def test_a_group_that_stops_matching_having_is_deleted_once(
    rows: list[model.Row], retention_ms: int | None, cuts: list[int], most: int
) -> None:
    emitted, _, _ = run(rows, retention_ms, cuts, f"rows <= {most}", restarts=True)
    assert [model.plain(row) for row in emitted] == model.TableGroups(model.UNDOABLE, retention_ms, most).run(rows)


@settings(max_examples=examples(60), deadline=None)
@given(
    rows=model.ROWS,
    retention_ms=RETENTIONS,
    cuts=model.CUTS,
    having=st.sampled_from([None, "rows > 0", "rows <= 2", "rows % 2 = 1", "distinct_texts = 1"]),
)
def test_folded_changes_are_the_last_ones_of_every_change(
    rows: list[model.Row], retention_ms: int | None, cuts: list[int], having: str | None
) -> None:
    store = MemorySegmentStore()
    regrouper, full = build(retention_ms, having, {}, store)
    spec = TableAggregation("t", (("group", "s.group"),), COLUMNS, having, is_folded=True)
    folding = TableAggregator(spec, regrouper.schema, None, store)
    times = RunningTimes()
    for start, end in model.slices(rows, cuts):
        batch = model.put_frame(rows[start:end], start)
        messages = regrouper.process(batch, {}, times.at([batch], is_table=True)).frame
        assert_folds_to(
            folding.process(messages, {}, BatchTime()).frame, full.process(messages, {}, BatchTime()).frame, ["group"]
        )


@settings(max_examples=examples(40), deadline=None)
@given(rows=model.ROWS, retention_ms=RETENTIONS, cuts=model.CUTS, having=st.sampled_from([None, "rows <= 2"]))
def test_keys_and_groups_that_are_shared_out_to_tasks_give_the_same(
    rows: list[model.Row], retention_ms: int | None, cuts: list[int], having: str | None
) -> None:
    found = []
    for tasks in (1, 2, 3):
        pairs = [build(retention_ms, having, {}, MemorySegmentStore()) for _ in range(tasks)]
        times, outputs, late = RunningTimes(), [], []
        for start, end in model.slices(rows, cuts):
            batch = model.put_frame(rows[start:end], start)
            moment = times.at([batch], is_table=True)
            shared = zip(pairs, shares(batch, ["s.key"], tasks), strict=True)
            results = [regrouper.process(share, {}, moment) for (regrouper, _), share in shared]
            late += [row for result in results for row in result.late.select(DESCRIBED).rows()]
            shared = zip(pairs, shares(merged([result.frame for result in results]), ["s.group"], tasks), strict=True)
            outputs.append(merged([aggregator.process(share, {}, moment).frame for (_, aggregator), share in shared]))
        found.append((repr(rows_of(outputs)), sorted(late)))
    assert found[1] == found[0]
    assert found[2] == found[0]

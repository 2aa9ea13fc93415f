"""The histogram of lateness counts what every grace would have found late, however the input is cut."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.lateness.rules import advise, histogram_of
from engine.definition.queries import QueryDefinition
from engine.frames.frames import merge_counters
from engine.operators.operators import BatchTime, Operator
from engine.operators.tasks.lateness import BOUNDS_MS, FEW, Counted, LatenessMeter, summed
from engine.operators.tasks.pipeline import Step
from engine.operators.tasks.slices import Slice
from engine.plan.build import build_plan
from engine.plan.catalog import source_entry
from engine.plan.lateness import settings_of
from engine.plan.model import Plan
from engine.plan.operators.answers import Allowance, Gauge
from engine.sources.shaping import for_input
from engine.state.segments.memory import MemorySegmentStore
from tests.batch_times import STREAMS, RunningTimes, unranked
from tests.bench.core_jobs import Feed, bids_and_versions, bids_only, two_streams
from tests.bench.nxt import replay
from tests.bench.oracle import judge_windows
from tests.examples import examples
from tests.lane_readings import Pipeline

TIMES = st.lists(st.integers(0, 40) | st.integers(0, 200_000), max_size=30)
ALLOWANCES = [Allowance(), Allowance(slack_ms=7), Allowance(size_ms=10, advance_ms=10), Allowance(size_ms=10, advance_ms=3)]


class Judge(Operator):
    """Stands for an operator that judges its rows."""

    name = "judge"


def frame(times: list[int], ops: list[int] | None = None, first: int = 0) -> pl.DataFrame:
    rows = len(times)
    schema = {"_ts": pl.Int64, "_op": pl.Int8, "_key_hash": pl.UInt64, "_pos": pl.Int64}
    columns = {"_ts": times, "_op": ops or [0] * rows, "_key_hash": [1] * rows, "_pos": list(range(first, first + rows))}
    return unranked(pl.DataFrame(columns, schema=schema))


def entering(times: RunningTimes, index: int, records: pl.DataFrame, *, silence_ms: int = 0) -> BatchTime:
    """Say when records of a stream enter a stage, of which they alone move the time."""
    moment = times.at([records], silence_ms=silence_ms)
    return replace(moment, tables={index: moment.clock})


def needed(clock: int, ts: int, allowance: Allowance) -> int:
    """The least grace at which a record is not late, found by trying (J3, W2, W4)."""
    for grace in range(250_000):
        if allowance.size_ms is None:
            is_late = ts + allowance.slack_ms < clock - grace
        else:
            starts = [start for start in range(0, ts + 1, allowance.advance_ms) if start <= ts < start + allowance.size_ms]
            is_late = bool(starts) and min(starts) + allowance.size_ms + grace <= clock
        if not is_late:
            return grace
    raise AssertionError


@settings(max_examples=examples(60), deadline=None)
@given(times=st.lists(st.integers(0, 60), max_size=25), cuts=st.sets(st.integers(1, 24)), allowance=st.sampled_from(ALLOWANCES))
def test_every_grace_finds_as_many_late_as_judging_each_record_by_it(
    times: list[int], cuts: set[int], allowance: Allowance
) -> None:
    gauge = Gauge("g", 0, None, "judge", "judge", (), allowance, 17)
    running, total = RunningTimes(), dict[str, Counted]()
    meter = LatenessMeter([gauge])
    for start, stop in pairwise(sorted({0, len(times), *(cut for cut in cuts if cut < len(times))})):
        rows = frame(times[start:stop])
        meter.reach(Judge(), rows, {}, running.at([rows]))
        total = summed(total, meter.take())
    histogram = histogram_of(total.get("g"))
    assert histogram.count == len(times)
    wanted = [needed(max([*times[:i], ts]), ts, allowance) for i, ts in enumerate(times)]
    assert histogram.max_ms == max(wanted, default=0)
    for grace in (*BOUNDS_MS, 17):
        assert histogram.late_above(grace) == sum(each > grace for each in wanted), grace


@settings(max_examples=examples(60), deadline=None)
@given(times=TIMES, cuts=st.sets(st.integers(1, 29)))
def test_an_input_is_measured_by_its_own_time_across_batches(times: list[int], cuts: set[int]) -> None:
    running, total = RunningTimes(), dict[str, Counted]()
    meter = LatenessMeter([Gauge("s", 0, 3, None, None)])
    for start, stop in pairwise(sorted({0, len(times), *(cut for cut in cuts if cut < len(times))})):
        records = frame(times[start:stop])
        meter.enter({3: records}, entering(running, 3, records))
        total = summed(total, meter.take())
    lateness = np.maximum.accumulate(np.array([0, *times]))[1:] - np.array(times) if times else np.array([])
    histogram = histogram_of(total.get("s"))
    for grace in BOUNDS_MS:
        assert histogram.late_above(grace) == int((lateness > grace).sum())


def test_many_records_count_as_the_same_in_small_batches() -> None:
    times = np.random.default_rng(7).integers(0, 1_000_000, 4 * FEW).tolist()
    whole, parts = (LatenessMeter([Gauge("s", 0, 3, None, None)]) for _ in range(2))
    running, total = RunningTimes(), dict[str, Counted]()
    whole.enter({3: frame(times)}, entering(RunningTimes(), 3, frame(times)))
    for start in range(0, len(times), FEW):
        records = frame(times[start : start + FEW])
        parts.enter({3: records}, entering(running, 3, records))
        total = summed(total, parts.take())
    assert total == whole.take()
    assert len(total["s"]["buckets"]) > 10


def test_deletes_of_streams_and_null_keys_are_not_measured() -> None:
    meter = LatenessMeter([Gauge("s", 0, 0, None, None)])
    records = frame([100, 50, 10], [1, 0, 0]).with_columns(pl.Series("_key_hash", [1, None, 1], dtype=pl.UInt64))
    meter.enter({0: records}, entering(RunningTimes(), 0, records))
    assert meter.take()["s"] == {"count": 1, "max_ms": 0, "buckets": {"0": 1}}


def test_silence_makes_what_comes_after_it_late() -> None:
    meter = LatenessMeter([Gauge("s", 0, 0, None, "judge")])
    records = frame([10], first=990)
    meter.enter({0: records}, entering(RunningTimes({STREAMS: 10}), 0, records, silence_ms=990))
    assert meter.take()["s"]["max_ms"] == 990


def measure(query: dict[str, Any], feeds: dict[str, Feed]) -> tuple[Plan, Step]:
    """Run a query over NX-T in arrival order with one task, in batches of 5,000 records of each input."""
    catalog = {name: source_entry(name, feed.definition) for name, feed in feeds.items()}
    plan = build_plan(QueryDefinition.model_validate({"name": "measured", "tasks": 1, **query}), catalog)
    pipeline = Pipeline(plan, None, lambda *_: MemorySegmentStore())
    total = Step()
    frames = [(item, for_input(feeds[item.relation.name].frame, item)) for item in plan.inputs]
    for first in range(0, max(frame.height for _, frame in frames), 5_000):
        step = pipeline.process([Slice(item.index, item.feed.name, 0, frame.slice(first, 5_000)) for item, frame in frames])
        merge_counters(total.counters, step.counters)
        total.lateness = summed(total.lateness, step.lateness)
    return plan, total


def advised(plan: Plan, step: Step, kind: str) -> dict[int, int]:
    setting = next(each for each in settings_of(plan) if each.kind == kind)
    found = advise(histogram_of(step.lateness.get(setting.gauge)), setting.current_ms)
    assert all(each.is_exact for each in found)
    assert [each.value_ms for each in found if each.is_current] == [setting.current_ms]
    return {each.value_ms: each.late_count for each in found}


JOIN = {
    "from": {"stream": "bids"},
    "joins": [{"table": "versions", "as": "v", "type": "left", "on": "bids.auction = v.auction", "grace": "7s"}],
    "select": {"n": "bids.n", "version": "v.version"},
    "into": {"stream": "joined"},
}


def test_on_nx_t_the_advice_for_a_join_is_what_each_grace_finds_late() -> None:
    plan, step = measure(JOIN, bids_and_versions("tiny"))
    bids, versions, _ = replay("tiny")
    advice = advised(plan, step, "join_grace")
    lateness = np.maximum.accumulate(bids.ts) - bids.ts
    assert {value: int((lateness > value).sum()) for value in advice} == advice
    assert advice[7_000] == step.counters["v", "late_joined"]
    assert min(advice.values()) == 0
    puts = np.maximum.accumulate(versions.ts) - versions.ts
    kept = advised(plan, step, "history_retention")
    assert {value: int((puts > value).sum()) for value in kept} == kept


@pytest.mark.parametrize("grace_ms", [0, 5_000, 7_000, 30_000])
def test_on_nx_t_the_advice_for_windows_counts_what_the_oracle_leaves_out(grace_ms: int) -> None:
    window = {"type": "tumbling", "size": "10s", "grace": f"{grace_ms}ms"}
    query = {
        "from": {"stream": "bids"},
        "group_by": ["auction"],
        "window": window,
        "aggregate": {"bids": "count(*)"},
        "into": {"table": "counts"},
    }
    plan, step = measure(query, bids_only("tiny"))
    advice = advised(plan, step, "window_grace")
    assert advice[grace_ms] == step.counters.get(("window", "window_closed"), 0)
    bids, _, _ = replay("tiny")
    ends, stream_times = bids.ts // 10_000 * 10_000 + 10_000, np.maximum.accumulate(bids.ts)
    assert {value: int((ends + value <= stream_times).sum()) for value in advice} == advice
    # The oracle counts what open windows took and what has closed; of all bids the rest was late or waits.
    nothing = pl.DataFrame(schema={"key": pl.Int64, "start": pl.Int64, "count": pl.Int64})
    waiting = int(((ends + grace_ms > stream_times) & (ends + grace_ms > stream_times[-1])).sum())
    oracle = judge_windows("tiny", nothing, "auction", 10_000, grace_ms)
    assert oracle.expected_counted == len(bids.ts) - advice[grace_ms] - waiting


def test_both_streams_of_a_join_are_measured_by_their_common_time() -> None:
    query = {
        "from": {"stream": "l"},
        "joins": [
            {
                "stream": "r",
                "type": "inner",
                "on": "l.item = r.item",
                "within": {"before": "500ms", "after": "500ms", "grace": "5s"},
            }
        ],
        "select": {"item": "l.item", "price": "l.price", "other": "r.price"},
        "into": {"stream": "met"},
    }
    plan, step = measure(query, two_streams("tiny"))
    assert advised(plan, step, "join_grace")[5_000] == step.counters["r", "join_window_closed"]


def test_a_value_between_two_bounds_is_advised_on_with_a_bound_only() -> None:
    histogram = histogram_of({"count": 3, "max_ms": 1_900, "buckets": {"0": 1, "1500": 1, "2000": 1}})
    found = {each.value_ms: each for each in advise(histogram, 1_700)}
    assert (found[1_700].late_count, found[1_700].is_exact) == (1, False)
    assert (found[1_000].late_count, found[1_000].is_exact) == (2, True)
    assert (found[2_000].late_count, found[2_000].late_share, found[2_000].added_wait_ms) == (0, 0.0, 2_000)
    assert max(found) == 2_000
    assert histogram.quantiles() == {"p50": 1_500, "p90": 1_900, "p99": 1_900, "p999": 1_900}
    assert histogram_of(None).quantiles() == {"p50": None, "p90": None, "p99": None, "p999": None}

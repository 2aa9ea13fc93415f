"""The stream-stream join's rules in ten-line cases; the property tests cover the rest."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Literal

import polars as pl
import pytest

from engine.expressions.types.types import BIGINT, STRING, Schema
from engine.frames.places import is_further, ranked
from engine.operators.joins.stream_stream import StreamStreamJoiner
from engine.operators.operators import OperatorOutput
from engine.plan.operators.stream_stream_join import StreamStreamJoin
from engine.state.segments.memory import MemorySegmentStore
from tests.batch_times import RunningTimes, unranked

LEFT = Schema((("l.key", STRING), ("l.value", STRING)))
RIGHT = Schema((("r.key", STRING), ("r.value", STRING)))
Record = tuple[Literal["l", "r", "o"], str | None, str | None, int]


class Case:
    """A join and the position of its next record. Records are (side, key, value, event time)."""

    def __init__(
        self, kind: Literal["inner", "left", "outer"] = "inner", before: int = 5, after: int = 5, grace: int = 0
    ) -> None:
        self.spec = StreamStreamJoin("r", kind, 1, ("l.key",), ("r.key",), before, after, grace, ("r.value",))
        self.store = MemorySegmentStore()
        self.pos = 0
        self.times = RunningTimes()
        self.join = StreamStreamJoiner(self.spec, LEFT, RIGHT, None, self.store)

    def restart(self, **changes: Any) -> None:
        self.spec = replace(self.spec, **changes)
        state = json.loads(json.dumps(self.join.snapshot()))
        self.join = StreamStreamJoiner(self.spec, LEFT, RIGHT, state, self.store)

    def run(self, *records: Record, advance_ms: int = 0) -> OperatorOutput:
        """One batch behind ``advance_ms`` of silence. Records of ``o`` are those of another task."""
        left, right, others = (self._frame(side, records, self.pos + advance_ms) for side in "lro")
        first, self.pos = self.pos, self.pos + advance_ms + len(records) + 1
        moment = self.times.at([left, right, others], position=self.pos - 1, silence_ms=advance_ms, first=first)
        return self.join.process(left, {1: right} if right.height else {}, moment)

    def pairs(self, *records: Record, advance_ms: int = 0) -> list[tuple[Any, ...]]:
        return self.run(*records, advance_ms=advance_ms).frame.select("l.value", "r.value", "_ts").rows()

    def _frame(self, side: str, records: tuple[Record, ...], first: int) -> pl.DataFrame:
        rows = [
            (first + i, ts, v is None, None if k is None else 1, 100 + i, k, v)
            for i, (own, k, v, ts) in enumerate(records)
            if own == side
        ]
        schema = {"_pos": pl.Int64, "_ts": pl.Int64, "_op": pl.Int8, "_key_hash": pl.UInt64, "_offset": pl.Int64}
        frame = pl.DataFrame(rows, schema={**schema, f"{side}.key": pl.String, f"{side}.value": pl.String}, orient="row")
        return unranked(frame)


def test_records_meet_within_the_bounds_and_at_the_later_ones_place() -> None:
    case = Case(before=2, after=4, grace=100)
    assert case.pairs(("l", "k", "x", 10), *(("r", "k", f"r{ts}", ts) for ts in (7, 8, 14, 15))) == [
        ("x", "r8", 10), ("x", "r14", 14),
    ]  # fmt: skip
    assert case.pairs(("l", "k", "y", 11), ("l", "other", "z", 10)) == [("y", "r14", 14), ("y", "r15", 15)]


def test_several_matches_come_by_time_then_arrival() -> None:
    case = Case(grace=100)
    case.run(("r", "k", "late", 4), ("r", "k", "first", 3))
    assert case.pairs(("r", "k", "second", 3), ("l", "k", "x", 5)) == [("x", "first", 5), ("x", "second", 5), ("x", "late", 5)]


def test_records_of_one_key_and_time_are_all_kept() -> None:
    case = Case()
    case.run(("r", "k", "a", 1), ("r", "k", "b", 1))
    case.run(("r", "k", "c", 1))
    case.restart()
    assert [right for _, right, _ in case.pairs(("l", "k", "x", 6))] == ["a", "b", "c"]


def test_a_record_whose_time_range_has_closed_is_late() -> None:
    result = Case(before=1, after=3, grace=2).run(
        ("l", "k", "a", 20), ("l", "k", "edge", 15), ("l", "k", "x", 14), ("r", "k", "y", 16)
    )
    assert result.frame.is_empty()
    assert result.counters == {("r", "join_window_closed"): 2}
    assert result.late.select("input", "reason", "event_time_ms", "stream_time_ms", "offset", "record").rows() == [
        ("r", "join_window_closed", 14, 20, 102, '{"l.key":"k","l.value":"x"}'),
        ("r", "join_window_closed", 16, 20, 103, '{"r.key":"k","r.value":"y"}'),
    ]


def test_null_rows_come_once_before_the_matches_of_the_record_that_closes_them() -> None:
    case = Case("outer", before=2, after=2, grace=1)
    assert case.pairs(("l", "k", "a", 2), ("r", "j", "b", 1), ("l", "j", "c", 1), ("r", "i", "d", 2)) == [("c", "b", 1)]
    case.restart()
    assert case.pairs(("l", "m", "x", 4), ("r", "m", "y", 6)) == [("a", None, 2), (None, "d", 2), ("x", "y", 6)]
    assert case.pairs(("l", "z", "z", 40), ("r", "z", "y", 40)) == [("z", "y", 40)]


def test_null_rows_of_one_time_come_left_before_right_then_by_arrival() -> None:
    case = Case("outer")
    case.run(("r", "a", "1", 3), ("l", "b", "2", 3), ("r", "c", "3", 3), ("l", "d", "4", 3), ("r", "e", "5", 2))
    shown = case.pairs(("l", "end", "end", 30))
    assert [left or right for left, right, _ in shown] == ["5", "2", "4", "1", "3"]


def test_what_has_closed_stays_closed_when_the_grace_grows() -> None:
    case = Case("left", before=10, after=0, grace=2)
    case.run(("l", "k", "a", 5), ("l", "k", "b", 7))
    assert case.pairs(("l", "j", "c", 9)) == [("a", None, 5)]
    case.restart(grace_ms=20)
    result = case.run(("r", "k", "x", 5), ("l", "k", "late", 6), ("l", "k", "d", 7))
    assert result.frame.select("l.value", "r.value").rows() == [("b", "x"), ("d", "x")]
    assert result.counters == {("r", "join_window_closed"): 1}


def test_what_a_smaller_grace_closes_goes_at_the_next_record() -> None:
    case = Case("left", grace=20)
    case.run(("l", "k", "a", 5), ("l", "j", "b", 15))
    case.restart(grace_ms=0)
    assert case.pairs(("r", "k", "x", 10)) == [("a", None, 5)]


def test_a_left_join_shows_only_left_records_alone() -> None:
    case = Case("left")
    assert case.pairs(("l", "k", "a", 1), ("r", "j", "b", 1), ("l", "i", "late", 50), ("l", "i", "end", 90)) == [
        ("a", None, 1), ("late", None, 50),
    ]  # fmt: skip


def test_what_has_closed_meets_nothing_any_more() -> None:
    case = Case("left", before=10, after=0)
    assert case.pairs(("l", "k", "a", 5), ("l", "j", "b", 10)) == [("a", None, 5)]
    assert case.pairs(("r", "k", "c", 5)) == []
    assert Case(before=10, after=0).pairs(("l", "k", "a", 5), ("l", "j", "b", 10), ("r", "k", "c", 5)) == []


@pytest.mark.parametrize(
    ("kind", "shown"), [("inner", []), ("left", [("a", None, 90)]), ("outer", [("a", None, 90), (None, "b", 91)])]
)
def test_null_keys_pass_at_once_where_nulls_may_come_and_move_no_clock(kind: Any, shown: list[Any]) -> None:
    case = Case(kind)
    result = case.run(("l", None, "a", 90), ("r", None, "b", 91), ("l", "k", None, 92))
    assert result.frame.select("l.value", "r.value", "_ts").rows() == shown
    assert result.counters == {("r", "null_key"): 2, ("r", "null_value"): 1}
    assert case.run(("l", "k", "x", 1)).counters == {}


def test_silence_closes_at_the_millisecond_that_brings_time_there() -> None:
    case = Case("left")
    case.run(("l", "k", "a", 1))
    assert case.join.due_ms == 7
    assert case.pairs(advance_ms=5) == []
    first = case.pos
    result = case.run(("l", "k", "end", 9), advance_ms=1)
    assert result.frame.select("_pos", "_ts", "_offset", "l.value").rows() == [(first, 1, 100, "a")]
    assert case.run(("l", "k", "late", 1)).counters == {("r", "join_window_closed"): 1}
    assert case.join.due_ms == 15


def test_what_a_record_of_another_task_closes_is_shown_at_its_place_and_meets_nothing_behind_it() -> None:
    case = Case("outer", before=2, after=2)
    case.run(("l", "k", "a", 1), ("r", "k", "b", 9))
    first = case.pos
    result = case.run(("r", "k", "c", 3), ("o", "j", "x", 11), ("o", "j", "y", 12), ("l", "k", "d", 10))
    assert result.frame.select("_pos", "l.value", "r.value").rows() == [(first + 2, None, "b")]
    assert result.counters == {("r", "join_window_closed"): 1}


def test_a_record_that_moves_time_is_judged_by_the_time_before_it_and_meets_what_it_closes() -> None:
    case = Case("left", before=0, after=50, grace=0)
    case.run(("l", "k", "a", 1))
    assert case.pairs(("r", "k", "b", 51)) == [("a", "b", 51)]
    case = Case("outer", before=50, after=0, grace=0)
    case.run(("r", "k", "b", 1))
    first = case.pos
    result = case.run(("l", "k", "a", 60), ("l", "k", "late", 2))
    assert result.frame.select("_pos", "l.value", "r.value").rows() == [(first, None, "b")]
    assert result.late.select("event_time_ms", "stream_time_ms").rows() == [(2, 60)]


def test_further_matches_of_a_record_have_places_of_their_own_and_those_of_a_released_row_do_not() -> None:
    case = Case(grace=100)
    case.run(("r", "k", "one", 3), ("r", "k", "two", 4))
    left = case._frame("l", (("l", "k", "x", 5),), case.pos)
    moment = case.times.at([left])
    further = is_further(case.join.process(left, {}, moment).frame.get_column("_rank"))
    assert further is not None
    assert further.tolist() == [False, True]
    released = ranked(left, 1, left["_ts"].to_numpy())
    assert is_further(case.join.process(released, {}, moment).frame.get_column("_rank")) is None


def test_what_can_meet_nothing_is_forgotten() -> None:
    case = Case("outer")
    for ts in range(150):
        case.run(("l", "k", "a", 10 * ts), ("r", "j", "b", 10 * ts))
    case.join.snapshot()
    case.store.purge()
    assert case.join.buffered_rows < 40
    assert len(case.store.segment_ids) < 40


def test_a_hot_key_is_matched_in_bounded_steps() -> None:
    case = Case(grace=10)
    rights: list[Record] = [("r", "k", "r", 1)] * 1_500
    result = case.run(*rights, *[("l", "k", "l", 1)] * 1_500)
    assert result.frame.height == 1_500 * 1_500
    assert result.frame.get_column("_pos").is_sorted()


def test_keys_of_several_columns_and_types_meet() -> None:
    left, right = Schema((("l.a", STRING), ("l.b", BIGINT))), Schema((("r.a", STRING), ("r.b", BIGINT), ("r.value", STRING)))
    spec = StreamStreamJoin("r", "outer", 1, ("l.a", "l.b"), ("r.a", "r.b"), 1, 1, 0, ("r.value", "r.b"))
    join = StreamStreamJoiner(spec, left, right, None, MemorySegmentStore())
    service = {"_ts": 1, "_op": 0, "_key_hash": 1, "_offset": 0}
    types = {"_pos": pl.Int64, "_ts": pl.Int64, "_op": pl.Int8, "_key_hash": pl.UInt64, "_offset": pl.Int64}
    frames = [
        pl.DataFrame([{"_pos": 0, **service, "l.a": "x", "l.b": 1}], schema={**types, **left.polars()}),
        pl.DataFrame(
            [{"_pos": pos, **service, "r.a": "x", "r.b": b, "r.value": "v"} for pos, b in ((1, 1), (2, 2), (3, None))],
            schema={**types, **right.polars()},
        ),
    ]
    frames = [unranked(frame) for frame in frames]
    result = join.process(frames[0], {1: frames[1]}, RunningTimes().at(frames))
    assert result.frame.select("l.a", "l.b", "r.value", "r.b").rows() == [("x", 1, "v", 1), (None, None, "v", None)]
    assert result.frame.columns[6:] == list(join.schema.names)


def test_an_eager_join_shows_a_record_without_a_partner_at_once_and_again_with_each_partner() -> None:
    case = Case("outer", grace=100)
    case.restart(is_eager=True)
    shown = case.run(
        ("l", "k", "x", 10), ("r", "k", "y", 11), ("l", "k", "z", 12), ("r", None, "w", 13), ("l", "k", "v", 500)
    ).frame
    assert shown.select("_pos", "l.value", "r.value", "_ts", "r.$state").rows() == [
        (0, "x", None, 10, "preliminary"),
        (1, "x", "y", 11, "final"),
        (2, "z", "y", 12, "final"),
        (3, None, "w", 13, "final"),
        (4, "v", None, 500, "preliminary"),
    ]

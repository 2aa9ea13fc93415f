"""The join's rules in ten-line cases; the property tests and the corpora cover the rest."""

from __future__ import annotations

import json
from typing import Any, Literal

import numpy as np
import polars as pl

from engine.expressions.types.types import STRING, Schema
from engine.frames.clocks import AFTER_ALL_TIME, Clock
from engine.frames.hashing import key_hash
from engine.frames.places import apart, is_further
from engine.operators.joins.stream_table import JoinKeys, StreamTableJoiner
from engine.operators.operators import BatchTime, OperatorOutput, TableProgress
from engine.plan.operators.stream_table_join import Hold, StreamTableJoin
from engine.state.segments.memory import MemorySegmentStore
from tests.batch_times import RunningTimes, unranked
from tests.late_frames import DESCRIBED

STREAM = Schema((("s.key", STRING), ("s.value", STRING)))
TABLE = Schema((("w.key", STRING), ("w.value", STRING)))
ALL_HASHED = JoinKeys(is_stream_hashed=True, is_table_hashed=True)


class Case:
    """A join and the positions of its inputs. Records are (side, key, value, event time)."""

    def __init__(self, **changes: Any) -> None:
        values: dict[str, Any] = {"type": "left", "history_retention_ms": 10, "grace_ms": 0, "late": "join", "expired": "null"}
        self.values = {**values, **changes}
        self.store = MemorySegmentStore()
        self.pos = 0
        self.times = RunningTimes()
        self.progress: TableProgress | None = None
        self.start(None)

    def start(self, state: dict[str, Any] | None, **changes: Any) -> None:
        self.values.update(changes)
        spec = StreamTableJoin(
            name="w", table_index=0, stream_key=("s.key",), table_key=("w.key",), table_columns=("w.value",), **self.values
        )
        self.join = StreamTableJoiner(spec, STREAM, TABLE, ALL_HASHED, state, self.store)

    def restart(self, **changes: Any) -> None:
        self.start(json.loads(json.dumps(self.join.snapshot())), **changes)

    def run(self, *records: tuple[str, str | None, str | None, int], now_ms: int = 0, advance_ms: int = 0) -> OperatorOutput:
        """One batch; the table's progress is ``self.progress``. Records of ``other`` are those of the stream in another task."""
        frames = {side: self._frame(side, records, self.pos + advance_ms) for side in ("s", "w", "other")}
        first, self.pos = self.pos, self.pos + len(records) + 1 + advance_ms
        moment = self.times.at(
            [frames["s"], frames["other"]],
            {0: frames["w"]},
            now_ms=now_ms,
            position=self.pos - 1,
            silence_ms=advance_ms,
            first=first,
            progress={} if self.progress is None else {0: self.progress},
        )
        return self.join.process(frames["s"], {0: frames["w"]} if frames["w"].height else {}, moment)

    def values_of(self, *records: tuple[str, str | None, str | None, int]) -> list[tuple[str, str | None]]:
        return self.run(*records).frame.select("s.value", "w.value").rows()

    def _frame(self, side: str, records: tuple[tuple[str, str | None, str | None, int], ...], first: int) -> pl.DataFrame:
        rows = [(first + i, ts, v is None, first + i, k, v) for i, (own, k, v, ts) in enumerate(records) if own == side]
        schema = {"_pos": pl.Int64, "_ts": pl.Int64, "_op": pl.Int8, "_offset": pl.Int64, f"{side}.key": pl.String}
        frame = pl.DataFrame(rows, schema={**schema, f"{side}.value": pl.String}, orient="row")
        return unranked(frame.with_columns(key_hash(frame, [f"{side}.key"])))


def test_a_record_meets_the_version_of_its_own_time() -> None:
    found = Case().values_of(("w", "k", "v1", 1), ("w", "k", "v5", 5), ("s", "k", "x", 4), ("s", "k", "y", 5))
    assert found == [("x", "v1"), ("y", "v5")]


def test_a_put_later_in_the_batch_is_not_seen() -> None:
    assert Case().values_of(("w", "k", "old", 1), ("s", "k", "x", 4), ("w", "k", "new", 2)) == [("x", "old")]


def test_a_record_waits_until_buffer_time_has_passed_it_by_the_grace() -> None:
    case = Case(grace_ms=5)
    assert case.values_of(("s", "k", "x", 4), ("s", "k", "y", 8), ("w", "k", "v", 4)) == []
    assert case.join.buffered_rows == 2
    assert case.values_of(("s", "k", "z", 9)) == [("x", "v")]


def test_releases_go_by_event_time_then_arrival() -> None:
    case = Case(grace_ms=3, type="left")
    assert case.values_of(("s", "k", "c", 3), ("s", "k", "a", 1), ("s", "k", "b", 1), ("s", "k", "end", 9)) == [
        ("a", None), ("b", None), ("c", None),
    ]  # fmt: skip


def test_a_late_record_is_joined_at_once_and_moves_nothing() -> None:
    case = Case(grace_ms=2)
    result = case.run(("s", "k", "x", 9), ("s", "k", "late", 6), ("s", "k", "edge", 7))
    assert result.frame["s.value"].to_list() == ["late", "edge"]
    assert result.counters["w", "late_joined"] == 1
    assert result.late.is_empty()


def test_a_diverted_record_is_kept_with_its_clock_and_content() -> None:
    result = Case(grace_ms=2, late="divert").run(("s", "k", "x", 9), ("s", "k", "late", 6))
    assert result.frame.is_empty()
    assert result.late.select(DESCRIBED).rows() == [("w", "late_diverted", 6, 9, 1, '{"s.key":"k","s.value":"late"}')]


def test_misses_say_why() -> None:
    result = Case().run(
        ("w", "gone", "v", 1), ("w", "gone", None, 2), ("w", "new", "v", 30), ("s", "gone", "a", 20), ("s", "new", "b", 5),
        ("s", "never", "c", 25), ("s", "new", "d", 30), ("s", None, "e", 1),
    )  # fmt: skip
    assert result.frame["w.$match"].to_list() == ["no_version", "history_expired", "no_version", "matched", "null_key"]
    recent = Case(history_retention_ms=100).run(("w", "k", "v", 1), ("w", "k", None, 2), ("s", "k", "a", 3))
    assert recent.frame["w.$match"].to_list() == ["deleted"]
    assert recent.counters == {("w", "deleted"): 1}


def test_an_expired_row_is_left_out_and_kept_where_the_definition_says_so() -> None:
    for policy, reason in (("drop", "expired_dropped"), ("divert", "expired_diverted")):
        result = Case(expired=policy).run(("w", "k", "v", 30), ("s", "k", "a", 5))
        assert result.frame.is_empty()
        assert result.late["reason"].to_list() == [reason]
        assert result.counters["w", "history_expired"] == 1


def test_an_inner_join_drops_misses_null_keys_and_null_values() -> None:
    result = Case(type="inner").run(("s", "k", "miss", 1), ("s", None, "x", 2), ("s", "k", None, 3), ("w", None, "v", 1))
    assert result.frame.is_empty()
    reasons = {reason: count for (_, reason), count in result.counters.items()}
    assert reasons == {"no_version": 1, "null_key": 1, "null_value": 1, "table_null_key": 1}


def test_a_null_key_passes_a_left_join_at_once() -> None:
    result = Case(grace_ms=5).run(("s", "k", "a", 1), ("s", None, "b", 99), ("s", "k", "c", 6))
    assert result.frame.select("s.value", "w.$match").rows() == [("b", "null_key"), ("a", "no_version")]


def test_a_put_older_than_retention_is_counted_and_kept() -> None:
    result = Case().run(("w", "k", "v", 30), ("w", "k", "edge", 20), ("w", "k", "old", 19), ("s", "k", "x", 20))
    assert result.frame["w.value"].to_list() == ["edge"]
    assert result.counters == {("w", "table_history_expired"): 1}
    assert result.late.select("reason", "event_time_ms", "stream_time_ms").rows() == [("table_history_expired", 19, 30)]


def test_further_rows_of_a_record_are_judged_and_released_behind_it() -> None:
    case = Case(grace_ms=2, late="drop")
    case.run(("s", "k", "before", 10))
    first = case.pos
    moves = case._frame("s", (("s", "k", "record", 20),), first)
    rows = moves[[0, 0, 0, 0]].with_columns(
        pl.Series("_ts", [8, 8, 18, 30]), pl.Series("s.value", ["own", "late", "due", "waits"])
    )
    rows = apart(rows, np.array([0, 1, 2, 3]))
    result = case.join.process(rows, {}, case.times.at([moves], {0: rows.clear()}))
    assert result.late["record"].str.json_path_match("$['s.value']").to_list() == ["late"]
    assert result.frame.select("_pos", "s.value").rows() == [(first, "own"), (first, "before"), (first, "due")]
    further = is_further(result.frame["_rank"])
    assert further is not None
    assert further.tolist() == [False, False, True]
    assert case.join.buffered_rows == 1


def test_an_unversioned_table_answers_by_arrival_and_counts_disorder() -> None:
    case = Case(history_retention_ms=None, grace_ms=None)
    result = case.run(("w", "k", "b", 9), ("w", "k", "a", 3), ("s", "k", "x", 1), ("w", "k", None, 4), ("s", "k", "y", 1))
    assert result.frame.select("w.value", "w.$match").rows() == [("a", "matched"), (None, "deleted")]
    assert result.counters == {("w", "out_of_order"): 1, ("w", "deleted"): 1}
    assert case.run(("w", "k", "old", 2)).counters == {("w", "out_of_order"): 1}


def test_grace_over_an_unversioned_table_meets_the_latest_at_release() -> None:
    case = Case(history_retention_ms=None, grace_ms=5)
    assert case.values_of(("s", "k", "x", 1), ("w", "k", "late", 900), ("s", "k", "y", 6)) == [("x", "late")]


def test_a_restart_keeps_buffer_clock_and_versions() -> None:
    case = Case(grace_ms=5)
    case.run(("w", "k", "v", 1), ("s", "k", "x", 3))
    case.restart()
    assert case.values_of(("s", "k", "y", 8)) == [("x", "v")]


def test_a_smaller_grace_releases_at_the_next_record() -> None:
    case = Case(grace_ms=10)
    case.run(("s", "k", "a", 1), ("s", "k", "b", 8))
    case.restart(grace_ms=2)
    assert case.values_of(("s", "k", "c", 7)) == [("a", None)]


def test_a_key_hash_of_another_key_is_not_used() -> None:
    case = Case()
    spec = StreamTableJoin("w", "left", 0, ("s.key",), ("w.key",), 10, None, "join", "null", ("w.value", "w.key"))
    case.join = StreamTableJoiner(spec, STREAM, TABLE, JoinKeys(is_stream_hashed=False, is_table_hashed=False), None, case.store)
    frames = [
        case._frame(side, ((side, "k", "x", 1),), 0).with_columns(_key_hash=pl.lit(salt, pl.UInt64))
        for salt, side in enumerate("ws")
    ]
    result = case.join.process(
        frames[1].with_columns(pl.lit(1).cast(pl.Int64).alias("_pos")), {0: frames[0]}, BatchTime(position=2, tables={0: Clock()})
    )
    assert result.frame.select("w.key", "_key_hash").rows() == [("k", 1)]
    assert [name for name in result.frame.columns if not name.startswith("_")] == list(case.join.schema.names)


def test_a_forgotten_tombstone_and_one_that_is_still_kept_answer_alike() -> None:
    for records in (
        [("w", "k", "v", 1), ("w", "k", None, 5), ("w", "other", "v", 40)],
        [("w", "k", "v", 1), ("w", "k", None, 5), *(("w", "other", "v", ts) for ts in range(40, 50))],
    ):
        case = Case()
        for item in records:  # the second run merges segments: its tombstone is gone
            case.run(item)
        result = case.run(("s", "k", "before", 3), ("s", "k", "after", 7))
        assert result.frame["w.$match"].to_list() == ["no_version", "no_version"]


def test_disorder_is_counted_once_whatever_the_batches() -> None:
    case = Case(history_retention_ms=None, grace_ms=None)
    counts = [case.run(("w", "k", "v", ts)).counters.get(("w", "out_of_order"), 0) for ts in (9, 3, 20, 30)]
    assert counts == [0, 1, 0, 0]


def hold(until: Literal["table_time", "caught_up"] = "table_time", slack_ms: int = 0, max_rows: int = 100) -> Hold:
    return Hold(until, slack_ms, at_most_ms=1_000, max_rows=max_rows)


def values(result: OperatorOutput) -> list[tuple[str, str | None]]:
    return result.frame.select("s.value", "w.value").rows()


def test_silence_releases_at_the_millisecond_that_brings_time_there_before_the_records() -> None:
    case = Case(grace_ms=5)
    case.run(("s", "k", "x", 3), ("s", "k", "y", 6))
    assert case.join.due_ms == 8
    assert values(case.run(("w", "k", "v", 1), advance_ms=1)) == []
    first = case.pos
    result = case.run(("w", "k", "new", 2), advance_ms=1)
    assert result.frame.select("_pos", "s.value", "w.value").rows() == [(first, "x", "v")]
    assert case.run(("s", "k", "late", 2)).counters["w", "late_joined"] == 1


def test_silence_before_the_first_record_moves_nothing() -> None:
    case = Case(grace_ms=5)
    case.run(advance_ms=50)
    assert case.join.due_ms is None
    assert case.run(("s", "k", "x", 3)).counters == {}


def test_a_record_of_another_task_brings_time_and_releases_at_its_place() -> None:
    case = Case(grace_ms=5)
    assert case.values_of(("s", "k", "x", 3), ("w", "k", "v", 1)) == []
    first = case.pos
    result = case.run(("w", "k", "seen", 2), ("other", "j", "y", 8), ("w", "k", "too late", 3))
    assert result.frame.select("_pos", "s.value", "w.value").rows() == [(first + 1, "x", "seen")]


def test_records_of_one_jump_of_time_are_judged_by_the_time_before_each() -> None:
    result = Case(grace_ms=2, late="drop").run(("s", "k", "a", 5), ("s", "k", "b", 50), ("s", "k", "c", 47))
    assert result.late.select("event_time_ms", "stream_time_ms").rows() == [(47, 50)]
    assert values(result) == [("a", None)]


def test_a_released_record_is_held_until_the_table_was_read_up_to_its_time_and_the_slack() -> None:
    case = Case(grace_ms=2, hold=hold(slack_ms=3))
    case.progress = TableProgress(read_to_ms=7)
    assert values(case.run(("s", "k", "x", 5), ("s", "k", "y", 8))) == []
    case.progress = TableProgress(read_to_ms=8)
    result = case.run(("w", "k", "v", 4))
    assert values(result) == [("x", "v")]
    assert result.counters == {}
    assert case.join.buffered_rows == 1


def test_without_grace_records_go_straight_to_the_hold_and_its_head_keeps_all_others_waiting() -> None:
    case = Case(grace_ms=None, hold=hold())
    case.progress = TableProgress(read_to_ms=9)
    assert values(case.run(("s", "k", "x", 20), ("s", "k", "y", 5))) == []
    case.progress = TableProgress(read_to_ms=20)
    assert values(case.run(("w", "k", "v", 5))) == [("x", "v"), ("y", "v")]


def test_a_table_at_its_end_lets_go_only_where_the_definition_says_so() -> None:
    for until, expected in (("table_time", []), ("caught_up", [("x", None)])):
        case = Case(hold=hold(until))
        case.progress = TableProgress(read_to_ms=0, caught_up_to_ms=AFTER_ALL_TIME)
        assert values(case.run(("s", "k", "x", 5))) == expected


def test_at_most_counts_from_buffering_and_takes_all_before_along() -> None:
    case = Case(grace_ms=5, hold=hold())
    case.run(("s", "k", "b", 9), now_ms=100)
    case.run(("s", "k", "a", 8), now_ms=300)
    case.run(("s", "k", "c", 14), now_ms=400)
    assert case.join.wakes_at_ms == 1_100
    case.restart()
    assert values(case.run(now_ms=1_099)) == []
    result = case.run(("w", "k", "v", 1), now_ms=1_100)
    assert values(result) == [("a", "v"), ("b", "v")]
    assert result.counters == {("w", "hold_expired"): 2}
    assert case.join.wakes_at_ms is None


def test_a_record_that_waited_too_long_for_the_grace_is_not_held() -> None:
    case = Case(grace_ms=5, hold=hold())
    case.run(("s", "k", "x", 1), now_ms=0)
    result = case.run(("s", "k", "y", 6), now_ms=1_000)
    assert values(result) == [("x", None)]
    assert result.counters["w", "hold_expired"] == 1


def test_over_max_rows_the_oldest_are_let_go() -> None:
    case = Case(hold=hold(max_rows=2))
    result = case.run(*(("s", "k", name, ts) for ts, name in enumerate("abcd")))
    assert values(result) == [("a", None), ("b", None)]
    assert result.counters["w", "hold_expired"] == 2
    assert values(case.run(("s", "k", "e", 9), ("w", "k", "v", 2))) == [("c", "v")]


def test_a_long_hold_lets_go_up_to_the_first_record_that_must_wait() -> None:
    case = Case(hold=hold(max_rows=100_000))
    case.run(*(("s", "k", "x", 10) for _ in range(7_000)), ("s", "k", "block", 20), *(("s", "k", "x", 20) for _ in range(3_000)))
    case.progress = TableProgress(read_to_ms=19)
    assert case.run().frame.height == 7_000
    assert case.run().frame.is_empty()
    case.progress = TableProgress(read_to_ms=20)
    assert case.run().frame.height == 3_001


def test_late_records_and_null_keys_are_not_held() -> None:
    case = Case(grace_ms=2, hold=hold())
    result = case.run(("s", "k", "x", 9), ("s", "k", "late", 6), ("s", None, "null", 9))
    assert result.frame.select("s.value", "w.$match").rows() == [("late", "no_version"), ("null", "null_key")]
    service = ["_pos", "_ts", "_op", "_offset", "s.key", "s.value", "_key_hash", "_rank"]
    assert result.frame.columns == [*service, "w.value", "w.$match"]


def test_a_held_record_meets_the_latest_value_of_an_unversioned_table() -> None:
    case = Case(history_retention_ms=None, grace_ms=2, hold=hold())
    case.run(("w", "k", "old", 1), ("s", "k", "x", 5), ("s", "k", "y", 7))
    case.progress = TableProgress(read_to_ms=6)
    assert values(case.run(("w", "k", "new", 90))) == [("x", "new")]

"""T10, T11, S2, J9: what waits by the wall clock does so by the clock of the query, whatever the number of tasks, and across restarts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition
from engine.frames.clocks import BEFORE_ALL_TIME, Clock
from engine.operators.tasks.clock_waits import MOST_MOMENTS, handed_on, with_moment
from engine.operators.tasks.progress import PartitionProgress
from engine.plan.build import build_plan
from engine.plan.catalog import source_entry
from engine.plan.model import Plan, feeds_held_for
from engine.plan.operators.answers import ClockWait
from engine.state.segments.memory import MemorySegmentStore
from tests.examples import examples
from tests.lane_readings import Pipeline
from tests.property.clocked_runs import FEED, feed, in_order
from tests.property.query_runs import Made, QueryRun, Record, merges
from tests.property.test_stage_order import DEFINITIONS
from tests.property.wall_model import NONE_YET, HeldWindows, Waits, WallSuppressed
from tests.stored.kinds import CATALOG, MINUTE_MS

_IDLE = {"idle": {"after": "1m"}}
_FINALS: dict[str, Any] = {
    "group_by": ["j.g"], "window": {"type": "tumbling", "size": "10m", "grace": "0s"},
    "aggregate": {"rows": "count(*)", "all": "collect_list(s.k)"}, "suppress": {"mode": "until_window_closes"},
    "into": {"table": "out"},
}  # fmt: skip
_HELD = {"table": "v", "as": "j", "on": "s.k = j.k", "type": "left", "grace": "5m"}
_UNCAPPED = {"at_most": "9000h", "max_rows": 1_000_000}
WALL: dict[str, dict[str, Any]] = {
    "idle_three_stages": {**DEFINITIONS["three_stages"], **_IDLE},
    "idle_rekeyed_changes": {**DEFINITIONS["join_then_rekeyed_window_changes"], **_IDLE},
    "idle_streams_then_session": {**DEFINITIONS["streams_then_rekeyed_session"], **_IDLE},
    "hold_then_window": {
        "from": {"stream": "s"}, "joins": [{**_HELD, "hold": {"until": "table_time", "slack": "1m", **_UNCAPPED}}], **_FINALS,
    },
    "idle_hold_then_join_then_window": {
        "from": {"stream": "s"},
        "joins": [
            {**_HELD, "hold": {"until": "caught_up", **_UNCAPPED}},
            {"table": "d", "as": "i", "on": "j.g = i.g", "type": "left", "grace": "5m"},
        ],
        **_FINALS, **_IDLE,
    },
    "wall_clock": {
        "from": {"stream": "s"}, "group_by": ["s.g"], "aggregate": {"rows": "count(*)", "last_n": "last(s.n)"},
        "suppress": {"mode": "until_wall_clock_time_limit", "limit": "2m"}, "into": {"table": "out"},
    },
    "idle_join_then_wall_clock": {
        "from": {"stream": "s"}, "joins": [_HELD], "group_by": ["j.g"], "aggregate": {"rows": "count(*)", "last_n": "last(s.n)"},
        "suppress": {"mode": "until_wall_clock_time_limit", "limit": "2m"}, "into": {"table": "out"}, **_IDLE,
    },
    "event_driven": {
        "from": {"stream": "s"}, "group_by": ["s.g"], "aggregate": {"rows": "count(*)", "last_n": "last(s.n)"},
        "suppress": {"mode": "until_wall_clock_time_limit", "limit": "2m", "event_driven": True}, "into": {"table": "out"},
    },
}  # fmt: skip
"""No hold has a cap that is reached: what a cap releases takes all before it along, and that are the rows of one task (J9)."""


class Part(NamedTuple):
    """A batch: how many of the next records, how much wall clock has passed, whether the table is read to its end.

    ``tasks``: the query begins anew before it, with so many tasks; None: it goes on.
    """

    records: int
    passed_ms: int
    is_at_end: bool
    tasks: int | None


parts = st.lists(
    st.builds(
        Part,
        st.integers(0, 6),
        st.sampled_from([0, 20_000, 70_000, 150_000, 20 * MINUTE_MS]),
        st.booleans(),
        st.sampled_from([None, None, None, 1, 2, 3]),
    ),
    min_size=1,
    max_size=8,
)


def planned(name: str) -> Plan:
    return build_plan(QueryDefinition.model_validate({"name": "q", **WALL[name]}), CATALOG)


class Clocked:
    """A query on a wall clock that only goes where a script sets it.

    Attributes:
        seen: after each batch the time behind the query, and when it wants to be woken.
    """

    def __init__(self, name: str, tasks: int) -> None:
        self.run = QueryRun(planned(name), tasks)
        self.now_ms = 0
        self.seen: list[tuple[int, int | None]] = []

    def process(self, records: Sequence[Record], passed_ms: int, *, is_at_end: bool = False) -> None:
        self.now_ms += passed_ms
        self.run.process(records, self.now_ms, self._progress(records, is_at_end=is_at_end))
        self.seen.append((self.run.time_behind, self.run.wakes_at_ms))

    def _progress(self, records: Sequence[Record], *, is_at_end: bool) -> list[PartitionProgress]:
        found = []
        for feed_name in sorted(feeds_held_for(self.run.plan)):
            for partition in (0, 1):
                own = [r.ts for r in records if CATALOG[r.relation].feed.name == feed_name and r.partition == partition]
                found.append(PartitionProgress(feed_name, partition, max(own, default=None), is_at_end))
        return found

    def play(self, records: Sequence[Record], script: Sequence[Part]) -> tuple[Made, list[tuple[int, int | None]]]:
        """Run a script, the last batch of which brings what is left, and then as long as the query wants to be woken."""
        start = 0
        for number, part in enumerate(script):
            if part.tasks is not None:
                self.run.restart(part.tasks)
            stop = len(records) if number + 1 == len(script) else start + part.records
            self.process(records[start:stop], part.passed_ms, is_at_end=part.is_at_end)
            start = stop
        for _ in range(100):
            if (wakes_at_ms := self.run.wakes_at_ms) is None:
                return self.run.made, self.seen
            assert wakes_at_ms > self.now_ms, "what is due is done"
            self.process([], wakes_at_ms - self.now_ms)
        raise AssertionError("a query without records comes to rest")


@pytest.mark.parametrize("name", WALL)
@settings(max_examples=examples(20), deadline=None)
@given(st.data())
def test_rows_late_records_times_and_wakes_are_the_same_for_any_number_of_tasks(name: str, data: st.DataObject) -> None:
    records = data.draw(merges(planned(name)), label="records")
    script = data.draw(parts, label="script")
    made, seen = Clocked(name, 1).play(records, [part._replace(tasks=None) for part in script])
    for tasks in (1, 2, 3, 7):
        other, other_seen = Clocked(name, tasks).play(records, script)
        assert (other.rows, other.late, other.marks) == (made.rows, made.late, made.marks)
        assert other_seen == seen
        assert other.events == made.events


@pytest.mark.parametrize(
    "name", [name for name in WALL if name.startswith("idle_") and "hold" not in name and "clock" not in name]
)
@settings(max_examples=examples(15), deadline=None)
@given(st.data())
def test_in_silence_it_does_not_matter_how_often_the_clock_is_looked_at(name: str, data: st.DataObject) -> None:
    """T10: time rises millisecond by millisecond, and waits do not add up: all that waits closes as the query's time passes."""
    records = data.draw(merges(planned(name)), label="records")
    looks = sorted(data.draw(st.lists(st.integers(1, 90 * MINUTE_MS), max_size=8), label="looks"))
    often, once = Clocked(name, 3), Clocked(name, 3)
    for query, places in ((often, looks), (once, [])):
        query.process(records, 0)
        for place in [*places, 200 * MINUTE_MS]:
            query.process([], place - query.now_ms)
    rows = [[row for _, _, *row in query.run.made.rows] for query in (often, once)]
    assert rows[0] == rows[1]
    assert often.run.made.late == once.run.made.late
    assert often.seen[-1] == once.seen[-1]
    if once.run.time_behind != BEFORE_ALL_TIME:
        assert once.run.wakes_at_ms is None, "nothing waits any more when the sum of all waits has passed"


def epoch_ms(at: datetime) -> int:
    return round(at.timestamp() * 1_000)


class Look(NamedTuple):
    """A batch of the shared feed: records (relation, key, event time), how much wall clock has passed, whether the table is at its end."""

    records: list[tuple[str, str, int]]
    passed_ms: int
    is_at_end: bool


looks = st.lists(
    st.builds(
        Look,
        st.lists(st.tuples(st.sampled_from("sssv"), st.sampled_from("abcd"), st.integers(0, 400)), max_size=4),
        st.sampled_from([0, 10, 40, 90, 200]),
        st.booleans(),
    ),
    min_size=1,
    max_size=10,
)
settings_of_holds = st.builds(
    Waits,
    grace=st.sampled_from([0, 60]),
    at_most=st.sampled_from([30, 100, 10_000]),
    slack=st.sampled_from([0, 20]),
    until_caught_up=st.booleans(),
    size=st.just(50),
    idle=st.sampled_from([None, 50]),
)
_COLUMNS = {"key": ["k"], "columns": {"k": "string", "v": "bigint"}, "connector": FEED}
_SHARED = {
    "s": source_entry("s", StreamDefinition.model_validate(_COLUMNS)),
    "v": source_entry("v", TableDefinition.model_validate({**_COLUMNS, "versioned": {"history_retention": "1h"}})),
}


def shared(body: dict[str, Any], tasks: int) -> Plan:
    return build_plan(QueryDefinition.model_validate({"name": "q", "tasks": tasks, "from": {"stream": "s"}, **body}), _SHARED)


@settings(max_examples=examples(150), deadline=None)
@given(script=looks, waits=settings_of_holds, is_sorted=st.booleans(), tasks=st.sampled_from([2, 3, 7]))
def test_a_hold_in_front_of_windows_does_as_its_model(script: list[Look], waits: Waits, is_sorted: bool, tasks: int) -> None:
    """J9, T11, P15. Only where records come in the order of time no row of one task is taken along by what a cap releases of another."""
    if is_sorted:
        times = sorted(ts for look in script for _, _, ts in look.records)
        script = [look._replace(records=[(name, key, times.pop(0)) for name, key, _ in look.records]) for look in script]
    hold = {
        "until": "caught_up" if waits.until_caught_up else "table_time", "at_most": f"{waits.at_most}ms",
        "slack": f"{waits.slack}ms", "max_rows": 1_000,
    }  # fmt: skip
    body: dict[str, Any] = {
        "joins": [{"table": "v", "type": "left", "on": "s.k = v.k", "grace": f"{waits.grace}ms", "hold": hold}],
        "group_by": ["s.k"], "window": {"type": "tumbling", "size": f"{waits.size}ms"}, "aggregate": {"n": "count(*)"},
        "suppress": {"mode": "until_window_closes"}, "into": {"stream": "out"},
        "select": {"at": "window_start", "k": "k", "n": "n"},
        **({} if waits.idle is None else {"idle": {"after": f"{waits.idle}ms"}}),
    }  # fmt: skip
    model = HeldWindows(waits)
    runs = {
        count: Pipeline(shared(body, count), None, lambda *_: MemorySegmentStore())
        for count in ((1, tasks) if is_sorted else (1,))
    }
    made: dict[int, list[Any]] = {count: [] for count in runs}
    late: dict[int, list[Any]] = {count: [] for count in runs}
    now_ms = offset = 0
    for look in script:
        now_ms += look.passed_ms
        model.batch(look.records, now_ms, is_at_end=look.is_at_end)
        newest = max((ts for name, _, ts in look.records if name == "v"), default=None)
        for count, pipeline in runs.items():
            plan = shared(body, count)
            progress = [PartitionProgress(plan.inputs[0].feed.name, 0, newest, look.is_at_end)]
            step = pipeline.process(feed(plan, look.records, offset), now_ms, progress)
            made[count] += [(epoch_ms(at), key, n) for *_, at, key, n in in_order(step)]
            late[count] += [
                (row["event_time_ms"], json.loads(row["record"])["s.k"], row["stream_time_ms"])
                for row in step.late.to_dicts()
                if row["reason"] == "window_closed"
            ]
            assert step.clocks.get("window", NONE_YET) == model.behind
        offset += len(look.records)
    assert all(rows == model.rows for rows in made.values())
    assert all(rows == model.late for rows in late.values())


@settings(max_examples=examples(100), deadline=None)
@given(script=looks, limit=st.sampled_from([30, 100, 200]), is_event_driven=st.booleans(), tasks=st.sampled_from([1, 2, 3, 7]))
def test_a_suppression_by_wall_clock_does_as_its_model(script: list[Look], limit: int, is_event_driven: bool, tasks: int) -> None:
    """S2, T11: rows in the order of (due, first arrival) over all tasks, and the time that its readers are told."""
    suppress = {"mode": "until_wall_clock_time_limit", "limit": f"{limit}ms", "event_driven": is_event_driven}
    body = {"group_by": ["s.k"], "aggregate": {"n": "count(*)"}, "suppress": suppress, "into": {"table": "out"}}
    plan = shared(body, tasks)
    model, pipeline = WallSuppressed(limit, is_event_driven), Pipeline(plan, None, lambda *_: MemorySegmentStore())
    rows, now_ms, offset = [], 0, 0
    for look in script:
        now_ms += look.passed_ms
        model.batch(look.records, now_ms)
        step = pipeline.process(feed(plan, look.records, offset), now_ms)
        rows += [(key, n) for *_, key, n in in_order(step)]
        offset += len(look.records)
        assert max(step.clock_behind.end, NONE_YET) == model.behind
    assert rows == model.rows


def test_the_moments_of_a_long_wait_stay_few_and_hand_on_hardly_later() -> None:
    """T11: an hour's wait with a batch each second."""
    wait, moments, begin = ClockWait(3_600_000, is_fixed_at_start=False), [], NONE_YET
    for second in range(8_000):
        now_ms = 1_000 * second
        moments = with_moment(moments, wait, now_ms, second)
        end = handed_on(moments, wait, now_ms, begin, Clock(second), None)
        moments = [each for each in moments if each[1] > end]
        assert len(moments) <= MOST_MOMENTS + 2
        assert second - 3_600 - 15 <= max(end, -15) <= max(second - 3_600, -15)
        begin = end

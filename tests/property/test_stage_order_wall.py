"""T10, T11, S2, J9: what waits by the wall clock does so by the clock of the query, whatever the number of tasks, and across restarts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.definition.queries import QueryDefinition
from engine.frames.clocks import BEFORE_ALL_TIME
from engine.frames.frames import POS, RANK
from engine.log.sequence import numbered
from engine.operators.tasks.pipeline import Pipeline, Step
from engine.operators.tasks.progress import PartitionProgress
from engine.plan.build import build_plan
from engine.plan.model import Plan, feeds_held_for
from engine.state.segments.memory import MemorySegmentStore
from tests.examples import examples
from tests.property.test_stage_order import DEFINITIONS, Record, Rows, batch_of, merges
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
    """A batch: how many of the next records, how much wall clock has passed, whether the table is read to its end, whether it begins anew."""

    records: int
    passed_ms: int
    is_at_end: bool
    is_restarted: bool


parts = st.lists(
    st.builds(
        Part,
        st.integers(0, 6),
        st.sampled_from([0, 20_000, 70_000, 150_000, 20 * MINUTE_MS]),
        st.booleans(),
        st.integers(0, 3).map(lambda value: value == 0),
    ),
    min_size=1,
    max_size=8,
)


def planned(name: str, tasks: int) -> Plan:
    return build_plan(QueryDefinition.model_validate({"name": "q", "tasks": tasks, **WALL[name]}), CATALOG)


class Played(NamedTuple):
    """What a query made: rows in the order of the log, late records in theirs, the time behind it and its next wake after each batch."""

    rows: Rows
    late: Rows
    times: list[int]
    wakes: list[int | None]


class Player:
    """Runs a query by a script; see ``Played``."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.now_ms = 0
        self.played = Played([], [], [], [])
        self._stores: dict[tuple[int, int], MemorySegmentStore] = {}
        self._pipeline = self._built(None)

    def _built(self, state: Any) -> Pipeline:
        return Pipeline(self.plan, state, lambda *place: self._stores.setdefault(place, MemorySegmentStore()))

    def restart(self) -> None:
        self._pipeline = self._built(json.loads(json.dumps(self._pipeline.snapshot())))

    def process(self, records: Sequence[Record], passed_ms: int, *, is_at_end: bool = False) -> Step:
        self.now_ms += passed_ms
        slices, lanes = batch_of(self.plan, records)
        step = self._pipeline.process(slices, self.now_ms, self._readings(records, is_at_end=is_at_end), lanes=lanes)
        numbers = numbered(step.causes, None, step.newest_head)
        batch = [
            (number, *map(repr, row))
            for frame, own in zip(step.changes, numbers.sequences, strict=True)
            for number, row in zip(own.tolist(), frame.rows(), strict=True)
        ]
        self.played.rows.extend(tuple(row) for _, *row in sorted(batch))
        self.played.late.extend(tuple(map(repr, row)) for row in step.late.drop("offset", POS, RANK).rows())
        self.played.times.append(step.clock_behind.end)
        self.played.wakes.append(step.wakes_at_ms)
        return step

    def _readings(self, records: Sequence[Record], *, is_at_end: bool) -> list[PartitionProgress]:
        return [
            PartitionProgress(feed, partition, newest, is_at_end)
            for feed in sorted(feeds_held_for(self.plan))
            for partition in (0, 1)
            for newest in [
                max((r.ts for r in records if CATALOG[r.relation].feed.name == feed and r.partition == partition), default=None)
            ]
        ]

    def play(self, records: Sequence[Record], script: Sequence[Part]) -> Played:
        """Run a script, the last batch of which brings what is left, and then as long as the query wants to be woken."""
        start = 0
        for number, part in enumerate(script):
            if part.is_restarted:
                self.restart()
            stop = len(records) if number + 1 == len(script) else start + part.records
            self.process(records[start:stop], part.passed_ms, is_at_end=part.is_at_end)
            start = stop
        for _ in range(100):
            wakes_at_ms = self.played.wakes[-1]
            if wakes_at_ms is None:
                break
            assert wakes_at_ms > self.now_ms or len(self.played.wakes) == 1, "what was due has been done"
            self.process([], max(wakes_at_ms - self.now_ms, 0))
        else:
            raise AssertionError("a query without records comes to rest")
        return self.played


@pytest.mark.parametrize("name", WALL)
@settings(max_examples=examples(20), deadline=None)
@given(st.data())
def test_rows_late_records_times_and_wakes_are_the_same_for_any_number_of_tasks(name: str, data: st.DataObject) -> None:
    records = data.draw(merges(planned(name, 1)), label="records")
    script = data.draw(parts, label="script")
    expected = Player(planned(name, 1)).play(records, [part._replace(is_restarted=False) for part in script])
    for tasks in (1, 2, 3, 7):
        assert Player(planned(name, tasks)).play(records, script) == expected


@pytest.mark.parametrize(
    "name", [name for name in WALL if name.startswith("idle_") and "hold" not in name and "clock" not in name]
)
@settings(max_examples=examples(15), deadline=None)
@given(st.data())
def test_in_silence_it_does_not_matter_how_often_the_clock_is_looked_at(name: str, data: st.DataObject) -> None:
    """T10: time rises millisecond by millisecond, and waits do not add up: all that waits closes as the query's time passes."""
    plan = planned(name, 3)
    records = data.draw(merges(plan), label="records")
    looks = sorted(data.draw(st.lists(st.integers(1, 90 * MINUTE_MS), max_size=8), label="looks"))
    last = 200 * MINUTE_MS
    often, once = Player(plan), Player(plan)
    for player, places in ((often, looks), (once, [])):
        player.process(records, 0)
        for place in [*places, last]:
            player.process([], place - player.now_ms)
    assert (often.played.rows, often.played.late) == (once.played.rows, once.played.late)
    assert often.played.times[-1] == once.played.times[-1]
    if once.played.times[-1] != BEFORE_ALL_TIME:
        assert once.played.wakes[-1] is None, "nothing waits any more when the sum of all waits has passed"

"""Each answer of an explanation, from literal facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from app.catalog.queries.columns import Values
from app.explain.rules.facts import (
    Committed,
    Explanation,
    FoundRecords,
    LateFact,
    Place,
    Question,
    Record,
    RejectFact,
    ResultFact,
    Step,
    Versions,
)
from app.explain.rules.walk import explain
from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition
from engine.plan.build import build_plan
from engine.plan.catalog import source_entry
from engine.plan.model import Input, Plan

H = 3_600_000
AT = 100 * H
COLUMNS = {"origin": "string", "carrier": "string", "delay": "double", "at": "timestamp"}
SOURCES: dict[str, Any] = {
    "departures": StreamDefinition.model_validate({"key": ["origin"], "columns": COLUMNS, "event_time": "at"}),
    "arrivals": StreamDefinition.model_validate({"key": ["origin"], "columns": COLUMNS, "event_time": "at"}),
    "weather": TableDefinition.model_validate(
        {
            "key": ["origin"], "columns": {"origin": "string", "region": "string", "at": "timestamp"}, "event_time": "at",
            "versioned": {"history_retention": "10h"},
        }
    ),
    "arrived": TableDefinition.model_validate(
        {"key": ["origin"], "columns": {"origin": "string", "region": "string"}, "versioned": {"history_retention": "10h"}}
    ),
    "names": TableDefinition.model_validate({"key": ["origin"], "columns": {"origin": "string", "name": "string"}}),
}  # fmt: skip
CATALOG = {name: source_entry(name, each) for name, each in SOURCES.items()}


@dataclass
class Known:
    """Facts that a test writes down."""

    committed: Committed = field(default_factory=Committed)
    found: Mapping[str, FoundRecords] = field(default_factory=dict)
    tables: Mapping[str, Versions] = field(default_factory=dict)
    late_records: Sequence[LateFact] = ()
    rejected: Sequence[RejectFact] = ()
    rows: Sequence[ResultFact] = ()
    read_to: int | None = None
    near: Sequence[Record] = ()
    asked: list[tuple[str, Values]] = field(default_factory=list)

    def record_at(self, source: Input, place: Place) -> Record | None:
        return next((each for each in self.records(source, {}, 0, 1 << 60).records if each.place == place), None)

    def records(self, source: Input, values: Values, from_ms: int, to_ms: int) -> FoundRecords:
        self.asked.append((source.alias, values))
        found = self.found.get(source.alias, FoundRecords())
        return FoundRecords(
            [each for each in found.records if from_ms <= each.event_time_ms <= to_ms], found.is_complete, found.is_trimmed
        )

    def nearest(self, source: Input, values: Values, at_ms: int) -> Sequence[Record]:
        return self.near

    def versions(self, source: Input, key: Values, at_ms: int) -> Versions:
        self.asked.append((source.alias, key))
        return self.tables.get(source.alias, Versions())

    def read_to_ms(self, source: Input) -> int | None:
        return self.read_to

    def late(self, values: Values, from_ms: int, to_ms: int) -> Sequence[LateFact]:
        self.asked.append(("late records", values))
        return self.late_records

    def rejects(self, source: Input, values: Values, place: Place | None) -> Sequence[RejectFact]:
        return self.rejected

    def results(self, values: Values, from_ms: int, to_ms: int) -> Sequence[ResultFact]:
        self.asked.append(("results", values))
        return self.rows


def record(ts: int = AT, *, is_read: bool = True, offset: int = 7, **values: Any) -> Record:
    return Record(Place(0, offset), ts, is_delete=False, is_read=is_read, values=values)


def version(ts: int, *, is_delete: bool = False, is_read: bool = True, **values: Any) -> Record:
    return Record(Place(0, ts // H), ts, is_delete, is_read, values)


def planned(tasks: int = 1, **parts: Any) -> Plan:
    return build_plan(QueryDefinition.model_validate({"name": "q", "tasks": tasks, **parts}), CATALOG)


def join(tasks: int = 1, **options: Any) -> Plan:
    return planned(
        tasks,
        **{"from": {"stream": "departures"}},
        joins=[{"table": "weather", "as": "w", "type": "left", "on": "departures.origin = w.origin", **options}],
        select={"origin": "departures.origin", "region": "w.region"},
        into={"stream": "joined"},
    )


def windows(suppress: str = "until_window_closes", window: Mapping[str, Any] | None = None, **more: Any) -> Plan:
    return planned(
        **{"from": {"stream": "departures"}},
        group_by=["origin"],
        window=window or {"type": "tumbling", "size": "2h", "grace": "1h"},
        aggregate={"flights": "count(*)"},
        suppress={"mode": suppress},
        into={"table": "flights"},
        **more,
    )


def ask(plan: Plan, known: Known, at: int = AT, place: Place | None = None, alias: str = "departures") -> Explanation:
    return explain(plan, Question({f"{alias}.origin": "JFK"}, at, place), known)


def answer(plan: Plan, known: Known, at: int = AT) -> Step:
    return ask(plan, known, at).answer


def clocks(stream: int | None, table: int | None = None) -> Committed:
    known = {"w": stream, "w.table": table, "window": stream}
    return Committed({name: time for name, time in known.items() if time is not None})


READ = {"departures": FoundRecords([record()])}


def test_a_record_that_lies_behind_the_position_is_not_read_yet() -> None:
    found = answer(join(), Known(found={"departures": FoundRecords([record(is_read=False)])}))
    assert (found.code, found.is_blocking, found.place) == ("not_read_yet", True, Place(0, 7))


def test_a_lag_in_a_feed_that_cannot_be_searched_is_not_read_yet() -> None:
    committed = Committed(position={"log:departures": {"0": 5}}, ends={"log:departures": {0: 8}})
    found = answer(join(), Known(committed, found={"departures": FoundRecords(is_complete=False)}))
    assert (found.code, found.sentence[:9]) == ("not_read_yet", "3 records")


def test_a_rejected_record_is_told_with_its_reason() -> None:
    found = answer(join(), Known(rejected=[RejectFact("wrong_type", "delay is no number", None, AT)]))
    assert (found.code, found.reason) == ("rejected", "wrong_type")
    assert "delay is no number" in found.sentence


@pytest.mark.parametrize("time", [AT - 1, AT + H, None])
def test_a_reject_of_another_time_is_not_blamed(time: int | None) -> None:
    assert answer(join(), Known(rejected=[RejectFact("wrong_type", "delay is no number", None, time)])).code == "no_record"


def test_of_several_rejects_in_a_window_the_nearest_is_blamed() -> None:
    rejected = [RejectFact("wrong_type", text, None, AT + ms) for text, ms in (("far", H), ("near", 1), ("outside", 2 * H))]
    assert "near" in answer(windows(), Known(rejected=rejected)).sentence


def test_without_a_record_the_answer_is_the_nearest_ones_whatever_the_clock() -> None:
    near = [record(AT - H, offset=3), Record(Place(1, 9, "web"), AT + H, is_delete=False, is_read=False)]
    for plan in (join(grace="1h"), join(grace="1h", late="drop"), windows()):
        for now in (None, AT, AT + 90 * H):
            found = ask(plan, Known(clocks(now), near=near))
            assert (found.answer.code, found.answer.is_blocking, found.nearest) == ("no_record", False, near)
            assert "No record with this key and time was read" in found.answer.sentence
            assert "1970-01-05T03:00:00Z (partition 0, offset 3)" in found.answer.sentence
            assert "1970-01-05T05:00:00Z (part web, partition 1, offset 9, not read yet)" in found.answer.sentence
            assert len(found.steps) > 1


def test_a_record_that_retention_may_have_removed_is_not_said_to_have_never_been_there() -> None:
    found = answer(join(), Known(found={"departures": FoundRecords(is_trimmed=True)}))
    assert (found.code, found.reason) == ("no_record", "removed")
    assert "was read" not in found.sentence


def test_a_late_record_or_a_row_of_this_key_and_time_says_more_than_its_absence_from_the_feed() -> None:
    late = Known(clocks(AT + 9 * H), late_records=[LateFact("w", "late_dropped", AT, AT + 5 * H)])
    assert answer(join(grace="1h", late="drop"), late).code == "late"
    assert answer(windows(), Known(clocks(AT + 9 * H), rows=[ResultFact(AT, AT, AT + 2 * H)])).code == "final"
    other = Known(clocks(AT + 9 * H), late_records=[LateFact("w", "late_dropped", AT + 1, AT + 5 * H)])
    assert answer(join(grace="1h", late="drop"), other).code == "no_record"


def test_a_late_record_of_the_joined_stream_is_not_taken_for_one_of_the_first() -> None:
    plan = planned(
        **{"from": {"stream": "departures"}},
        joins=[
            {"stream": "arrivals", "as": "a", "on": "departures.origin = a.origin", "within": {"before": "1h", "after": "1h"}}
        ],
        select={"origin": "departures.origin", "delay": "a.delay"},
        into={"stream": "met"},
    )
    theirs, ours = (LateFact("a", "join_window_closed", AT, AT, columns={f"{name}.origin"}) for name in ("a", "departures"))
    known = Committed({"a": AT + 9 * H})
    assert answer(plan, Known(known, READ, late_records=[theirs])).code == "no_version"
    assert answer(plan, Known(known, READ, late_records=[ours])).code == "late"


def test_a_late_record_from_another_place_does_not_answer_for_this_one() -> None:
    def at(offset: int | None) -> Step:
        late = [LateFact("w", "late_dropped", AT, AT + 5 * H, offset=offset)]
        return ask(join(grace="1h", late="drop"), Known(clocks(AT + 9 * H), READ, late_records=late), place=Place(0, 7)).answer

    assert [at(offset).code for offset in (7, 8, None)] == ["late", "no_version", "late"]


def test_a_record_of_the_window_that_the_query_takes_is_told_before_one_that_it_leaves_out() -> None:
    plan = planned(
        **{"from": {"stream": "departures", "where": "delay > 5"}},
        group_by=["origin"], window={"type": "tumbling", "size": "2h"}, aggregate={"n": "count(*)"}, into={"table": "n"},
    )  # fmt: skip
    both = FoundRecords([record(AT, offset=1, delay=1.0), record(AT + 1, offset=2, delay=9.0)])
    step = ask(plan, Known(clocks(AT), {"departures": both})).steps[0]
    assert (step.code, step.place) == ("passed", Place(0, 2))


def test_rows_of_a_table_are_looked_for_only_where_the_whole_key_is_known() -> None:
    plan = planned(
        **{"from": {"stream": "departures"}}, group_by=["origin", "carrier"], window={"type": "tumbling", "size": "2h"},
        aggregate={"flights": "count(*)"}, into={"table": "flights"},
    )  # fmt: skip
    known = Known(clocks(AT + 9 * H), rows=[ResultFact(AT, AT, AT + 2 * H)])
    assert answer(plan, known).code == "no_record"
    assert "results" not in [what for what, _ in known.asked]


def test_a_record_at_a_place_that_the_feed_does_not_have_is_unknown() -> None:
    assert ask(join(), Known(), place=Place(0, 99)).answer.code == "unknown"


def test_a_record_at_a_place_is_judged_by_its_own_time() -> None:
    known = Known(clocks(AT), found={"departures": FoundRecords([record(AT - H, origin="LGA")])})
    found = ask(join(grace="2h"), known, at=0, place=Place(0, 7)).answer
    assert (found.code, found.until_ms) == ("buffered_until", AT + H)


def test_late_records_of_a_place_are_those_of_its_records_key() -> None:
    known = Known(clocks(AT), found={"departures": FoundRecords([record(AT, origin="LGA", carrier="AA")])})
    found = explain(join(grace="2h"), Question({}, 0, Place(0, 7)), known)
    assert found.record is not None
    assert found.record.event_time_ms == AT
    assert ("late records", {"departures.origin": "LGA"}) in known.asked


def test_a_record_before_the_querys_start_was_left_out() -> None:
    plan = windows(start={"at": "1970-01-05T04:00:00Z"})
    assert plan.inputs[0].start == AT
    assert ask(plan, Known(clocks(AT + 9 * H), READ)).steps[0].code == "passed"
    left_out = answer(plan, Known(clocks(AT + 9 * H), {"departures": FoundRecords([record(AT - 1)])}), at=AT - 1)
    assert (left_out.code, left_out.reason, left_out.is_blocking) == ("filtered", "start", True)
    assert "the query starts at 1970-01-05T04:00:00Z" in left_out.sentence


def test_a_record_waits_for_the_grace_until_stream_time_reaches_its_end() -> None:
    found = answer(join(grace="1h"), Known(clocks(AT + H - 1), READ))
    assert (found.code, found.reason, found.clock, found.now_ms, found.until_ms) == (
        "buffered_until", "grace", "stream_time", AT + H - 1, AT + H,
    )  # fmt: skip
    assert answer(join(grace="1h"), Known(clocks(AT + H), READ)).code == "no_version"


def test_a_record_that_would_come_now_would_wait_too() -> None:
    found = ask(join(grace="1h"), Known(clocks(None)))
    assert [step.code for step in found.steps] == ["no_record", "buffered_until"]
    assert "would wait" in found.steps[-1].sentence


def test_an_answer_names_the_keys_task_and_the_time_of_the_query() -> None:
    step = answer(join(4, grace="1h"), Known(clocks(AT), READ))
    assert (step.code, step.now_ms) == ("buffered_until", AT)
    assert step.task in range(4)


def test_a_kept_late_record_is_late_with_the_policys_reason() -> None:
    known = Known(clocks(AT + 9 * H), READ, late_records=[LateFact("w", "late_diverted", AT, AT + 5 * H)])
    found = answer(join(grace="1h", late="divert"), known)
    assert (found.code, found.reason, found.now_ms, found.is_blocking) == ("late", "late_diverted", AT + 5 * H, True)


def test_a_late_record_that_was_replayed_is_explained_further() -> None:
    known = Known(clocks(AT + 9 * H), READ, late_records=[LateFact("w", "late_diverted", AT, AT + 5 * H, is_replayed=True)])
    found = ask(join(grace="1h", late="divert"), known)
    assert [step.code for step in found.steps][:3] == ["passed", "late", "no_version"]


@pytest.mark.parametrize(("policy", "is_blocking"), [("drop", True), ("divert", True), ("join", False)])
def test_a_record_that_would_come_too_late_would_be_late(policy: str, is_blocking: bool) -> None:
    steps = ask(join(grace="1h", late=policy), Known(clocks(AT + H + 1))).steps
    late = next(step for step in steps if step.code == "late")
    assert late.is_blocking == is_blocking
    assert all(step.code != "late" for step in ask(join(grace="1h", late=policy), Known(clocks(AT + H))).steps)


def test_the_version_valid_at_the_time_answers() -> None:
    versions = Versions(version(AT - H, region="east"), version(AT + H), version(AT + H))
    found = answer(join(grace="1h"), Known(clocks(AT + H, AT + H), READ, {"w": versions}))
    assert (found.code, found.version_ms, found.next_version_ms) == ("joined_version", AT - H, AT + H)


def test_a_version_that_is_not_read_yet_is_mentioned() -> None:
    versions = Versions(version(AT - H), None, version(AT - H), version(AT, is_read=False))
    assert "not read yet" in answer(join(), Known(clocks(AT, AT), READ, {"w": versions})).sentence


@pytest.mark.parametrize(("kind", "is_blocking"), [("inner", True), ("left", False)])
def test_no_version_leaves_a_left_join_its_nulls_and_an_inner_one_nothing(kind: str, is_blocking: bool) -> None:
    known = Known(clocks(AT, AT), READ, {"w": Versions(None, version(AT + H), version(AT + H))})
    found = answer(join(type=kind), known)
    assert (found.code, found.reason, found.is_blocking) == ("no_version", "no_version", is_blocking)
    assert "The first is from" in found.sentence
    deleted = version(AT - H, is_delete=True)
    found = answer(join(type=kind), Known(clocks(AT, AT), READ, {"w": Versions(deleted, None, deleted)}))
    assert (found.code, found.reason) == ("no_version", "deleted")


def test_a_time_before_the_history_is_expired_unless_the_latest_version_is_older() -> None:
    known = clocks(AT + 11 * H, AT + 10 * H + 1)
    newer = Versions(version(AT - H), version(AT + H), version(AT + H))
    found = answer(join(), Known(known, READ, {"w": newer}))
    assert (found.code, found.reason, found.is_blocking) == ("expired", "history_expired", False)
    assert "was joined before the history" in found.sentence
    assert not answer(join(expired="divert"), Known(known, READ, {"w": newer})).is_blocking, (
        "it would have been diverted with a reason"
    )
    steps = ask(join(expired="divert"), Known(known, {}, {"w": newer})).steps
    assert [(step.code, step.is_blocking) for step in steps if step.code == "expired"] == [("expired", True)], "it would be"
    older = Versions(version(AT - H), None, version(AT - H))
    assert answer(join(), Known(known, READ, {"w": older})).code == "joined_version"
    at_the_edge = clocks(AT + 11 * H, AT + 10 * H)
    assert answer(join(), Known(at_the_edge, READ, {"w": newer})).code == "joined_version"


def test_a_record_that_met_expired_history_and_was_diverted_is_expired() -> None:
    known = Known(clocks(AT, AT), READ, late_records=[LateFact("w", "expired_diverted", AT, None)])
    found = answer(join(expired="divert"), known)
    assert (found.code, found.reason, found.is_blocking) == ("expired", "expired_diverted", True)


def test_a_table_that_cannot_be_searched_is_unknown() -> None:
    found = ask(join(), Known(clocks(AT, AT), READ, {"w": Versions(is_complete=False)}))
    assert [step.code for step in found.steps] == ["passed", "unknown", "passed"]


def test_an_unversioned_table_answers_with_its_latest_row() -> None:
    plan = planned(
        **{"from": {"stream": "departures"}},
        joins=[{"table": "names", "as": "n", "on": "departures.origin = n.origin"}],
        select={"origin": "departures.origin", "name": "n.name"},
        into={"stream": "named"},
    )
    latest = version(AT + 50 * H)
    found = answer(plan, Known(Committed(), READ, {"n": Versions(latest, None, latest)}))
    assert (found.code, found.version_ms) == ("joined_version", AT + 50 * H)


def test_a_hold_waits_for_the_tables_progress() -> None:
    plan = join(grace="1h", hold={"until": "table_time", "at_most": "10m"})
    committed = Committed({"w": AT + H, "w.table": AT}, {"w": {"0": 1}})
    found = answer(plan, Known(committed, READ, read_to=AT - 1))
    assert (found.code, found.reason, found.clock, found.now_ms, found.until_ms) == (
        "buffered_until", "hold", "table_time", AT - 1, AT,
    )  # fmt: skip
    assert answer(plan, Known(committed, READ, read_to=AT)).code == "no_version"


def test_an_open_window_tells_when_it_closes() -> None:
    found = answer(windows(), Known(clocks(AT + 3 * H - 1), READ))
    assert (found.code, found.is_blocking, found.now_ms, found.until_ms) == (
        "window_open_until", True, AT + 3 * H - 1, AT + 3 * H,
    )  # fmt: skip


def test_a_closed_window_is_final() -> None:
    row = ResultFact(AT + H, AT, AT + 2 * H)
    found = answer(windows(), Known(clocks(AT + 3 * H), READ, rows=[row]))
    assert (found.code, found.version_ms, found.is_blocking) == ("final", AT + H, False)


def test_a_row_of_an_open_window_may_change() -> None:
    row = ResultFact(AT + H, AT, AT + 2 * H)
    found = answer(windows("none"), Known(clocks(AT + H), READ, rows=[row]))
    assert (found.code, found.is_blocking, found.version_ms) == ("window_open_until", False, AT + H)


def test_a_record_that_came_after_its_window_closed_is_late() -> None:
    late = [LateFact("window", "window_closed", AT, AT + 4 * H)]
    found = answer(windows(), Known(clocks(AT + 4 * H), READ, late_records=late, rows=[ResultFact(AT, AT, AT + 2 * H)]))
    assert (found.code, found.reason, found.now_ms) == ("late", "window_closed", AT + 4 * H)


def test_a_record_that_would_come_after_its_window_closed_would_be_late() -> None:
    assert ask(windows(), Known(clocks(AT + 3 * H))).steps[-1].code == "late"
    assert ask(windows(), Known(clocks(AT + 3 * H - 1))).steps[-1].code == "window_open_until"


def test_a_closed_window_without_a_row_says_what_may_have_removed_it() -> None:
    found = answer(windows(having="flights > 5"), Known(clocks(AT + 3 * H), READ))
    assert (found.code, found.is_blocking) == ("unknown", True)
    assert "having" in found.sentence


def test_corrections_begin_at_the_windows_end() -> None:
    plan = windows("window_end_then_corrections")
    assert answer(plan, Known(clocks(AT + H), READ)).until_ms == AT + 2 * H
    rows = [ResultFact(AT, AT, AT + 2 * H)]
    assert answer(plan, Known(clocks(AT + 2 * H), READ, rows=rows)).until_ms == AT + 3 * H


def test_a_session_stays_open_for_gap_and_grace_behind_its_last_record() -> None:
    plan = windows(window={"type": "session", "gap": "1h", "grace": "1h"})
    assert answer(plan, Known(clocks(AT + H), READ)).until_ms == AT + 2 * H + 1
    rows = [ResultFact(AT + 3 * H, AT, AT + 3 * H)]
    found = answer(plan, Known(clocks(AT + 5 * H + 1), READ, rows=rows))
    assert (found.code, found.until_ms) == ("final", AT + 5 * H + 1)


def test_a_sliding_window_that_ends_with_the_record_closes_after_the_grace() -> None:
    plan = windows(window={"type": "sliding", "difference": "1h", "grace": "1h"})
    assert answer(plan, Known(clocks(AT + H), READ)).until_ms == AT + H + 1


def test_hopping_windows_are_explained_by_the_one_that_closes_first() -> None:
    plan = windows(window={"type": "hopping", "size": "4h", "advance": "2h"})
    assert answer(plan, Known(clocks(AT), READ)).until_ms == AT + 2 * H


def test_a_condition_that_the_record_fails_filters_it() -> None:
    plan = planned(
        **{"from": {"stream": "departures", "where": "carrier <> 'XX'"}},
        where="departures.delay > 5",
        select={"origin": "departures.origin"},
        into={"stream": "some"},
    )
    source = ask(plan, Known(found={"departures": FoundRecords([record(carrier="XX", delay=9.0)])}))
    assert [step.code for step in source.steps] == ["filtered"]
    chain = ask(plan, Known(found={"departures": FoundRecords([record(carrier="AA", delay=1.0)])}))
    assert [step.code for step in chain.steps] == ["passed", "filtered"]
    assert [step.code for step in ask(plan, Known(found={"departures": FoundRecords([record(carrier="AA", delay=9.0)])})).steps] == [
        "passed", "passed", "passed",
    ]  # fmt: skip


def test_a_held_back_update_tells_when_it_is_let_go() -> None:
    plan = planned(
        **{"from": {"stream": "departures"}},
        group_by=["origin"],
        aggregate={"flights": "count(*)"},
        suppress={"mode": "until_time_limit", "limit": "1h"},
        into={"table": "flights"},
    )
    operator = next(each for each in plan.stages[-1].operators if getattr(each, "limit_ms", None) is not None)
    known = Known(Committed({operator.name: AT}), READ)  # type: ignore[union-attr]
    assert (answer(plan, known).code, answer(plan, known).until_ms) == ("buffered_until", AT + H)
    assert "at the latest" in answer(plan, known).sentence  # an earlier update that waits too has fixed the time (S1)


def test_a_wall_clock_suppression_tells_the_first_time_that_is_due() -> None:
    plan = planned(
        **{"from": {"stream": "departures"}},
        group_by=["origin"],
        aggregate={"flights": "count(*)"},
        suppress={"mode": "until_wall_clock_time_limit", "limit": "1h"},
        into={"table": "flights"},
    )
    name = plan.stages[-1].operators[-2].name  # type: ignore[union-attr]
    known = Known(Committed(buffered={name: {"0": 2}}, wakes={"0:0": 5_000}), READ)
    found = answer(plan, known)
    assert (found.code, found.clock, found.until_ms) == ("buffered_until", "wall_clock", 5_000)


def test_a_table_joins_the_latest_row_of_another_by_the_same_key() -> None:
    plan = planned(
        **{"from": {"table": "weather"}},
        joins=[{"table": "names", "as": "n", "type": "inner", "on": "weather.origin = n.origin"}],
        select={"origin": "weather.origin", "name": "n.name"},
        into={"table": "both"},
    )
    known = Known(found={"weather": FoundRecords([record()])}, tables={"n": Versions()})
    found = ask(plan, known, alias="weather").answer
    assert (found.code, found.is_blocking) == ("no_version", True)
    assert ("n", {"origin": "JFK"}) in known.asked


def test_a_stream_waits_for_its_partner_in_another() -> None:
    plan = planned(
        **{"from": {"stream": "departures"}},
        joins=[
            {
                "stream": "arrivals", "as": "a", "type": "inner", "on": "departures.origin = a.origin",
                "within": {"before": "1h", "after": "2h", "grace": "1h"},
            }
        ],
        select={"origin": "departures.origin", "delay": "a.delay"},
        into={"stream": "met"},
    )  # fmt: skip
    waiting = answer(plan, Known(Committed({"a": AT}), READ))
    assert (waiting.code, waiting.reason, waiting.until_ms) == ("buffered_until", "partner", AT + 3 * H + 1)
    alone = answer(plan, Known(Committed({"a": AT + 3 * H + 1}), READ))
    assert (alone.code, alone.reason, alone.is_blocking) == ("no_version", "no_partner", True)
    partner = {**READ, "a": FoundRecords([record(AT + 2 * H)])}
    assert answer(plan, Known(Committed({"a": AT}), partner)).code == "joined_version"
    unread = {**READ, "a": FoundRecords([record(AT + H, is_read=False)])}
    assert answer(plan, Known(Committed({"a": AT}), unread)).code == "not_read_yet"
    assert ask(plan, Known(Committed({"a": AT + 3 * H + 1}))).steps[-1].code == "late"


def test_each_operator_of_a_plan_of_two_stages_has_its_say_with_the_task_of_its_own_key() -> None:
    plan = planned(
        4,
        **{"from": {"stream": "departures"}},
        joins=[{"table": "weather", "as": "w", "type": "left", "on": "departures.origin = w.origin", "grace": "1h"}],
        group_by=["w.region"],
        window={"type": "tumbling", "size": "2h"},
        aggregate={"flights": "count(*)"},
        suppress={"mode": "until_window_closes"},
        into={"table": "flights"},
    )
    committed = Committed({"w": AT + H, "w.table": AT, "window": AT + H})
    before = version(AT - H, region="east")
    found = ask(
        plan, Known(committed, {"departures": FoundRecords([record(origin="JFK")])}, {"w": Versions(before, None, before)})
    )
    assert [(step.kind, step.code, step.stage) for step in found.steps] == [
        ("source", "passed", 0), ("stream_table_join", "joined_version", 0), ("window_aggregation", "window_open_until", 1),
    ]  # fmt: skip
    assert all(step.task is not None for step in found.steps[1:])
    blind = ask(plan, Known(committed, {"departures": FoundRecords([record(origin="JFK")])}, {"w": Versions(is_complete=False)}))
    assert blind.steps[-1].task is None


def test_a_result_that_is_there_is_shown_where_nothing_else_says_more() -> None:
    plan = planned(
        **{"from": {"stream": "departures"}}, group_by=["origin"], aggregate={"flights": "count(*)"}, into={"table": "flights"}
    )
    found = answer(plan, Known(found=READ, rows=[ResultFact(AT)]))
    assert (found.code, found.version_ms) == ("shown", AT)


def test_of_a_record_that_nobody_has_seen_nothing_is_known() -> None:
    plan = planned(
        **{"from": {"stream": "departures"}}, group_by=["origin"], aggregate={"flights": "count(*)"}, into={"table": "flights"}
    )
    assert answer(plan, Known()).code == "no_record"


def test_a_table_is_looked_up_by_what_an_expression_makes_of_the_record() -> None:
    plan = join(4, on="upper(departures.carrier) = w.origin")
    known = Known(clocks(AT, AT), {"departures": FoundRecords([record(origin="JFK", carrier="aa")])})
    found = ask(plan, known)
    assert ("w", {"origin": "AA"}) in known.asked
    assert (found.answer.code, found.answer.task) == ("no_version", found.steps[-2].task)
    assert found.answer.task is not None, "the expression says which task the record is in"


def test_a_lookup_by_an_expression_of_what_is_not_known_names_it() -> None:
    found = ask(join(on="upper(departures.carrier) = w.origin"), Known(clocks(AT, AT)))
    unknown = next(step for step in found.steps if step.kind == "stream_table_join")
    assert unknown.code == "unknown"
    assert 'upper("departures"."carrier")' in unknown.sentence


@pytest.mark.parametrize(("kind", "is_blocking"), [("inner", True), ("left", False)])
def test_a_record_whose_join_key_is_null_meets_nothing_and_waits_for_nothing(kind: str, is_blocking: bool) -> None:
    plan = join(on="upper(departures.carrier) = w.origin", grace="1h", type=kind)
    found = answer(plan, Known(clocks(AT), {"departures": FoundRecords([record(origin="JFK", carrier=None)])}))
    assert (found.code, found.reason, found.is_blocking) == ("no_version", "null_key", is_blocking)


def met(on: str, **parts: Any) -> Plan:
    return planned(
        **{"from": {"stream": "departures"}},
        joins=[{"stream": "arrivals", "as": "a", "on": on, "within": {"before": "1h", "after": "2h", "grace": "1h"}}],
        select={"origin": "departures.origin", "delay": "a.delay"},
        into={"stream": "met"},
        **parts,
    )


def test_partners_are_looked_for_by_what_both_sides_make_of_their_columns() -> None:
    plan = met("departures.origin = a.origin AND lower(departures.carrier) = lower(a.carrier)")
    computed = next(item for item in plan.inputs if item.alias == "a").computed[0].name
    known = Known(
        Committed({"a": AT}),
        {"departures": FoundRecords([record(origin="JFK", carrier="AA")]), "a": FoundRecords([record(AT + H)])},
    )
    assert answer(plan, known).code == "joined_version"
    assert ("a", {"origin": "JFK", computed: "aa"}) in known.asked


def test_partners_are_looked_for_by_the_records_own_time() -> None:
    plan = met("departures.origin = a.origin AND departures.$event_time_ms / 1000 = a.$event_time_ms / 1000")
    known = Known(Committed({"a": AT}), {"departures": FoundRecords([record(origin="JFK")]), "a": FoundRecords([record(AT + H)])})
    assert answer(plan, known).code == "joined_version"
    asked = next(values for alias, values in known.asked if alias == "a")
    assert sorted(map(str, asked.values())) == sorted(["JFK", str(AT // 1000)])


def test_a_partner_that_meets_another_key_is_not_taken_for_one_where_the_key_is_not_known() -> None:
    known = Known(Committed({"a": AT}), {"a": FoundRecords([record(AT + H)])})
    found = ask(met("lower(departures.carrier) = a.carrier"), known).steps[1]
    assert (found.kind, found.code) == ("stream_stream_join", "unknown")
    assert 'lower("departures"."carrier")' in found.sentence


def test_partners_of_a_null_key_there_are_none() -> None:
    known = Known(Committed({"a": AT}), {"departures": FoundRecords([record(origin="JFK", carrier=None)])})
    found = answer(met("lower(departures.carrier) = a.carrier"), known)
    assert (found.code, found.reason, found.is_blocking) == ("no_version", "null_key", True)


def test_a_foreign_key_that_is_an_expression_is_evaluated() -> None:
    plan = planned(
        **{"from": {"table": "weather"}},
        joins=[{"table": "names", "as": "n", "type": "left", "on": "lower(weather.region) = n.origin"}],
        select={"origin": "weather.origin", "name": "n.name"},
        into={"table": "named"},
    )  # fmt: skip
    known = Known(found={"weather": FoundRecords([version(AT, origin="JFK", region="EAST")])})
    steps = ask(plan, known, alias="weather").steps
    assert ("n", {"origin": "east"}) in known.asked
    assert "no_version" in [step.code for step in steps]


def test_rows_of_a_result_are_looked_for_by_what_the_query_groups_by() -> None:
    plan = planned(
        **{"from": {"stream": "departures"}},
        group_by=["lower(carrier)"],
        aggregate={"flights": "count(*)"},
        select={"line": "group_1", "flights": "flights"},
        into={"table": "flights"},
    )
    known = Known(found={"departures": FoundRecords([record(origin="JFK", carrier="AA")])}, rows=[ResultFact(AT)])
    assert ask(plan, known).answer.code == "shown"
    assert ("results", {"line": "aa"}) in known.asked


def test_no_version_of_a_table_without_an_event_time_names_the_arrival_as_the_reason() -> None:
    later = {"w": Versions(next=version(AT + H), latest=version(AT + H))}
    found = answer(join(table="arrived"), Known(clocks(AT, AT + H), READ, later))
    assert (found.code, "rows are valid from their arrival" in found.sentence) == ("no_version", True)
    assert "arrival" not in answer(join(), Known(clocks(AT, AT + H), READ, later)).sentence


def test_the_latest_row_of_an_unversioned_table_that_is_newer_than_the_record_may_not_have_been_met() -> None:
    def met_at(ms: int) -> str:
        found = Versions(version(ms), latest=version(ms))
        return answer(plan, Known(clocks(AT), READ, {"n": found})).sentence

    plan = planned(
        **{"from": {"stream": "departures"}},
        joins=[{"table": "names", "as": "n", "on": "departures.origin = n.origin"}],
        select={"origin": "departures.origin", "name": "n.name"},
        into={"stream": "named"},
    )
    assert "read before this row met an older one, or none. names names no" in met_at(AT + H)
    assert "read before" not in met_at(AT)

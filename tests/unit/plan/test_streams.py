"""Queries over streams: joins of streams, keys that are computed, holds, idle, windows of every kind, suppression."""

from __future__ import annotations

from typing import Any

import pytest

from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition
from engine.errors import DefinitionInvalid
from engine.expressions.types.types import STRING
from engine.plan.build import build_plan, normalise, state_fingerprint
from engine.plan.catalog import Catalog, source_entry
from engine.plan.model import Computed, Plan
from engine.plan.operators.row_operators import Filter, Projection
from engine.plan.operators.stream_stream_join import StreamStreamJoin
from engine.plan.operators.stream_table_join import Hold, StreamTableJoin
from engine.plan.operators.suppression import SuppressBuffer, TimeLimitSuppression, WallClockSuppression, WindowClosing
from engine.plan.operators.windows import SessionAggregation, SlidingAggregation, WindowAggregation

COLUMNS = {"id": "string", "ad": "string", "price": "double", "tags": "map<string,int>"}


def _stream(**columns: str) -> Any:
    return StreamDefinition.model_validate({"key": ["id"], "columns": columns})


def _table(**more: Any) -> Any:
    return TableDefinition.model_validate({"key": ["ad"], "columns": {"ad": "string", "owner": "string"}, **more})


CATALOG: Catalog = {
    "views": source_entry("views", _stream(**COLUMNS)),
    "clicks": source_entry("clicks", _stream(**COLUMNS)),
    "ads": source_entry("ads", _table(versioned={"history_retention": "1h"})),
    "owners": source_entry(
        "owners", TableDefinition.model_validate({"key": ["name"], "columns": {"name": "string", "city": "string"}})
    ),
}
WITHIN = {"before": "1m", "after": "5m"}
CLICKS = {"stream": "clicks", "as": "c", "on": "views.ad = c.ad", "within": WITHIN}
ADS = {"table": "ads", "on": "views.ad = ads.ad"}
OWNERS = {"table": "owners", "on": "views.ad = owners.name"}
SELECT = {"id": "views.id", "ad": "views.ad"}
HOURLY = {"type": "tumbling", "size": "1h"}
COUNTED: dict[str, Any] = {"group_by": ["ad"], "aggregate": {"n": "count(*)"}}
LIMITED = {"mode": "until_time_limit", "limit": "5m"}
OUT = {"table": "out"}


def build(**parts: Any) -> Plan:
    body = {"name": "q", "from": {"stream": "views"}, "into": {"stream": "out"}, **parts}
    return build_plan(QueryDefinition.model_validate(body), CATALOG)


def refused(**parts: Any) -> set[tuple[str, str]]:
    with pytest.raises(DefinitionInvalid) as caught:
        build(**parts)
    return {(problem.pointer, problem.code) for problem in caught.value.problems}


def test_two_streams_are_read_in_one_stage_by_the_columns_they_meet_on() -> None:
    plan = build(joins=[{**CLICKS, "type": "left"}], select=SELECT, start={"at": "1970-01-01T00:00:01Z"})
    assert [(one.alias, one.hash_key, one.start) for one in plan.inputs] == [("views", ("ad",), 1_000), ("c", ("ad",), 1_000)]
    assert plan.stages[0].operators[0] == StreamStreamJoin(
        "c", "left", 1, ("views.ad",), ("c.ad",), 60_000, 300_000, 0, ("c.id", "c.ad")
    )
    assert plan.stages[0].running == 0


def test_a_table_joined_after_a_stream_shares_its_stage_and_is_declared_first() -> None:
    plan = build(joins=[CLICKS, {**ADS, "on": "c.ad = ads.ad"}], select=SELECT)
    assert [one.alias for one in plan.inputs] == ["ads", "views", "c"]
    first, second = plan.stages[0].operators[:2]
    assert isinstance(first, StreamStreamJoin)
    assert isinstance(second, StreamTableJoin)
    assert (first.stream_index, second.table_index, second.stream_key) == (2, 0, ("c.ad",))
    assert plan.inputs[0].hash_key == ("ad",), "in an inner join c.ad is views.ad"


def test_a_join_key_that_is_computed_becomes_a_column_and_gets_a_stage() -> None:
    plan = build(joins=[{**ADS, "on": "lower(views.ad) = ads.ad"}], select=SELECT)
    first, second = plan.stages
    assert isinstance(first.operators[0], Projection)
    assert dict(first.operators[0].columns)["ads.$on0"] == 'lower("views"."ad")'
    assert (first.exchange_key, plan.inputs[0].hash_key) == (("ads.$on0",), ("ad",))
    join = second.operators[0]
    assert isinstance(join, StreamTableJoin)
    assert (join.stream_key, join.table_key) == (("ads.$on0",), ("ads.ad",))
    assert [(one.alias, one.stage) for one in plan.inputs] == [("views", 0), ("ads", 1)]


def test_streams_meet_on_expressions_of_both_sides_and_the_other_input_makes_its_own() -> None:
    join = {**CLICKS, "on": "upper(views.ad) = trim(lower(c.ad))"}
    plan = build(joins=[join], select=SELECT)
    right = plan.inputs[1]
    assert (right.stage, right.columns, right.hash_key) == (1, ("id",), ("$right0",))
    assert right.computed == (Computed("$right0", 'trim(lower("ad"))', STRING),)
    operator = plan.stages[1].operators[0]
    assert isinstance(operator, StreamStreamJoin)
    assert (operator.left_key, operator.right_key) == (("c.$on0",), ("c.$right0",))
    assert build(joins=[{**join, "on": "trim(lower(c.ad)) = upper(views.ad)"}], select=SELECT) == plan
    both = build(joins=[{**join, "on": f"{join['on']} AND c.id = views.id"}], select=SELECT)
    assert [(one.stage, one.hash_key) for one in both.inputs] == [(0, ("id",)), (0, ("id",))]


@pytest.mark.parametrize(
    ("join", "code"),
    [
        ({**ADS, "on": "views.ad = lower(ads.ad)"}, "join_key_mismatch"),
        ({**CLICKS, "on": "views.ad = concat(c.ad, views.id)"}, "join_key_mismatch"),
        ({**CLICKS, "on": "views.ad = lower('x')"}, "join_key_mismatch"),
        ({**CLICKS, "on": "views.ad = lower(c.ad) AND views.id = lower(c.ad)"}, "join_key_mismatch"),
        ({**CLICKS, "on": "views.ad = lower(c.nothing)"}, "unknown_column"),
        ({**CLICKS, "on": "views.ad = length(c.ad)"}, "type_mismatch"),
    ],
)
def test_an_expression_that_cannot_be_met_is_refused(join: dict[str, Any], code: str) -> None:
    assert ("/joins/0/on", code) in refused(joins=[join], select=SELECT)


def test_a_right_join_of_streams_has_the_key_of_the_right_one() -> None:
    join = {**CLICKS, "type": "right"}
    plan = build(joins=[join], select={"id": "c.id", "left": "views.id"}, into=OUT)
    assert plan.output.key == ("id",)
    assert build(joins=[join], select={"left": "views.id"}).output.key == ()


def test_a_join_on_what_a_table_gave_gets_a_stage_by_it() -> None:
    plan = build(joins=[ADS, {"table": "owners", "on": "ads.owner = owners.name"}], where="city = 'X'", select=SELECT)
    assert plan.stages[0].exchange_key == ("ads.owner",)
    assert [type(operator) for operator in plan.stages[1].operators] == [StreamTableJoin, Filter, Projection]


def test_a_group_that_is_computed_is_called_by_its_place() -> None:
    plan = build(group_by=["lower(ad)", "id"], window=HOURLY, aggregate={"n": "count(*)"}, into=OUT)
    computed, window = plan.stages[0].operators[:2]
    assert isinstance(computed, Projection)
    assert isinstance(window, WindowAggregation)
    assert window.group == (("group_1", "group.group_1"), ("id", "views.id"))
    assert plan.output.key == ("group_1", "id", "window_start", "window_end")
    assert plan.inputs[0].hash_key == ("id",)


def test_a_hold_is_part_of_the_join_and_spelled_out() -> None:
    join = {**ADS, "grace": "0s", "hold": {"at_most": "1m", "slack": "2s"}}
    planned = build(joins=[join], select=SELECT).stages[0].operators[0]
    assert isinstance(planned, StreamTableJoin)
    assert planned.hold == Hold("table_time", 2_000, 60_000, 1_000_000)
    body = {"name": "q", "from": {"stream": "views"}, "joins": [join], "into": {"stream": "out"}}
    stored = normalise(QueryDefinition.model_validate(body)).model_dump(mode="json", by_alias=True)
    assert stored["joins"][0]["hold"] == {"until": "table_time", "slack": "2s", "at_most": "1m", "max_rows": 1_000_000}


def test_a_session_and_a_sliding_window_have_a_length_of_their_own() -> None:
    session = build(**COUNTED, window={"type": "session", "gap": "30m", "grace": "1m"}, into=OUT)
    sliding = build(**COUNTED, window={"type": "sliding", "difference": "10d"}, into=OUT)
    first, second = session.stages[0].operators[0], sliding.stages[0].operators[0]
    assert isinstance(first, SessionAggregation)
    assert isinstance(second, SlidingAggregation)
    assert (first.gap_ms, first.grace_ms, second.difference_ms) == (1_800_000, 60_000, 864_000_000)
    assert (session.output.retention_ms, sliding.output.retention_ms) == (7 * 86_400_000, 10 * 86_400_000)


def test_corrections_are_marked_and_the_mark_is_shown_by_default() -> None:
    plan = build(**COUNTED, window=HOURLY, suppress={"mode": "window_end_then_corrections"}, into=OUT)
    window = plan.stages[0].operators[0]
    assert isinstance(window, WindowAggregation)
    assert window.emit == "corrections"
    assert plan.output.columns.names == ("ad", "window_start", "window_end", "n", "state")
    assert not plan.output.is_final


def test_changes_are_held_back_by_the_whole_key_before_the_select() -> None:
    bounds = {"max_rows": 5, "when_full": "emit_early"}
    plan = build(**COUNTED, window=HOURLY, suppress={**LIMITED, "buffer": bounds}, into=OUT)
    (aggregated,), (held, _) = (stage.operators for stage in plan.stages)
    assert (aggregated.name, plan.stages[0].exchange_key) == ("window", ()), "a bound is one task's (S4)"
    assert held == TimeLimitSuppression(
        "suppress",
        ("ad", "window_start", "window_end"),
        300_000,
        SuppressBuffer(5, None, "emit_early"),
        WindowClosing("window_end", 0),
    )
    clocked = {"mode": "until_wall_clock_time_limit", "limit": "1s", "event_driven": True}
    assert build(**COUNTED, suppress=clocked, into=OUT).stages[0].operators[1] == WallClockSuppression(
        "suppress", ("ad",), 1_000, None, is_event_driven=True
    )


@pytest.mark.parametrize(
    ("window", "delay"),
    [
        ({"type": "hopping", "size": "1h", "advance": "10m"}, 60_000),
        ({"type": "session", "gap": "2m"}, 180_001),
        ({"type": "sliding", "difference": "1h"}, 60_001),
    ],
)
def test_a_suppression_knows_when_each_kind_of_window_has_closed(window: dict[str, Any], delay: int) -> None:
    def plan(grace: str) -> Plan:
        return build(**COUNTED, window={**window, "grace": grace}, suppress=LIMITED, into=OUT)

    held = plan("1m").stages[0].operators[1]
    assert isinstance(held, TimeLimitSuppression)
    assert held.closing == WindowClosing("window_end", delay)
    assert state_fingerprint(plan("1m")) == state_fingerprint(plan("5m"))


def test_idle_lets_a_result_say_what_was_forced() -> None:
    plan = build(**COUNTED, window=HOURLY, idle={"after": "5m"}, into=OUT)
    assert plan.idle_after_ms == 300_000
    assert plan.output.columns.names[-1] == "forced"
    waiting = {**ADS, "grace": "1m"}
    assert build(joins=[waiting], idle={"after": "5m"}, select={"was": '"$forced"'}).output.columns.names == ("was",)
    assert ("/select/was", "unknown_column") in refused(select={"was": "$forced"})


def test_what_may_change_in_place_leaves_state_valid_and_nothing_else() -> None:
    def fingerprint(**parts: Any) -> str:
        return state_fingerprint(build(**{"select": SELECT, **parts}))

    held = {**ADS, "grace": "1m", "hold": {"at_most": "1m"}}
    longer = {**ADS, "grace": "2m", "hold": {"at_most": "2m", "until": "caught_up", "max_rows": 7}}
    assert fingerprint(joins=[held]) == fingerprint(joins=[longer], idle={"after": "1m"}, late_records={"max_rows": 3})
    assert fingerprint(joins=[held]) != fingerprint(joins=[{**ADS, "grace": "1m"}])
    assert fingerprint(joins=[CLICKS]) == fingerprint(joins=[{**CLICKS, "within": {**WITHIN, "grace": "1h"}}])
    assert fingerprint(joins=[CLICKS]) != fingerprint(joins=[{**CLICKS, "within": {**WITHIN, "after": "1h"}}])
    limited: dict[str, Any] = {**COUNTED, "select": None, "into": OUT}
    assert fingerprint(**limited, suppress=LIMITED) == fingerprint(**limited, suppress={**LIMITED, "limit": "1h"})
    bounded = [{**LIMITED, "limit": "1h", "buffer": {"max_rows": rows}} for rows in (3, 5)]
    assert fingerprint(**limited, suppress=bounded[0]) == fingerprint(**limited, suppress=bounded[1])
    assert fingerprint(**limited, suppress=LIMITED) != fingerprint(**limited, suppress=bounded[0])
    assert fingerprint(**limited, suppress=LIMITED) != fingerprint(**limited)
    session = {"type": "session", "gap": "1m"}
    assert fingerprint(**limited, window=session) == fingerprint(**limited, window={**session, "grace": "1m", "retention": "9d"})


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"joins": [{**ADS, "type": "right"}]}, ("/joins/0/type", "unsupported_pair")),
        ({"joins": [{**CLICKS, "within": None}]}, ("/joins/0/within", "field_missing")),
        ({"joins": [{**CLICKS, "within": {**WITHIN, "unmatched": "eager"}}]}, ("/joins/0/within/unmatched", "unsupported_option")),
        ({"joins": [{**CLICKS, "grace": "1m"}]}, ("/joins/0/grace", "unsupported_option")),
        ({"joins": [{**CLICKS, "history": "complete"}]}, ("/joins/0/history", "unsupported_option")),
        ({"joins": [{**CLICKS, "on": "views.tags = c.tags"}]}, ("/joins/0/on", "type_mismatch")),
        ({"joins": [{**CLICKS, "on": "views.ad = c.nope"}]}, ("/joins/0/on", "unknown_column")),
        ({"joins": [{**CLICKS, "type": "outer"}], "select": SELECT, "into": OUT}, ("/into/table", "key_missing_in_select")),
        ({"joins": [{**ADS, "within": WITHIN}]}, ("/joins/0/within", "unsupported_option")),
        ({"joins": [{**ADS, "history": "complete"}]}, ("/joins/0/history", "unsupported_option")),
        ({"joins": [{**ADS, "hold": {"at_most": "1m"}}]}, ("/joins/0/hold", "hold_without_grace")),
        ({"suppress": LIMITED, "into": OUT}, ("/suppress/mode", "suppress_needs_table")),
        ({**COUNTED, "suppress": {"mode": "until_time_limit"}}, ("/suppress/limit", "field_missing")),
        ({**COUNTED, "suppress": {"mode": "none", "limit": "1m"}}, ("/suppress/limit", "limit_without_mode")),
        ({**COUNTED, "suppress": {"mode": "none", "buffer": {}}}, ("/suppress/buffer", "buffer_without_mode")),
        ({**COUNTED, "suppress": {**LIMITED, "event_driven": True}}, ("/suppress/event_driven", "unsupported_option")),
        ({**COUNTED, "suppress": {"mode": "window_end_then_corrections"}}, ("/suppress/mode", "corrections_without_window")),
        ({**COUNTED, "window": HOURLY, "suppress": {"mode": "until_window_closes", "buffer": {"when_full": "emit_early"}}},
         ("/suppress/buffer/when_full", "emit_early_not_final")),
        ({**COUNTED, "window": HOURLY, "suppress": {"mode": "until_window_closes", "buffer": {"max_bytes": 9}}},
         ("/suppress/buffer/max_bytes", "buffer_not_bounded")),
        ({**COUNTED, "window": HOURLY, "into": {**OUT, "versioned": {"history_retention": "59m"}}},
         ("/into/versioned/history_retention", "history_retention_too_short")),
        ({**COUNTED, "window": HOURLY, "having": '"$state" = 1', "suppress": {"mode": "window_end_then_corrections"}},
         ("/having", "unknown_column")),
        ({**COUNTED, "group_by": []}, ("/group_by", "group_missing")),
        ({"select": SELECT, "idle": {"after": "1m"}}, ("/idle", "idle_without_clock")),
        ({"joins": [ADS], "select": SELECT, "idle": {"after": "1m"}}, ("/idle", "idle_without_clock")),
        ({**COUNTED, "suppress": {"mode": "until_wall_clock_time_limit", "limit": "1m"}, "idle": {"after": "1m"}, "into": OUT},
         ("/idle", "idle_without_clock")),
        ({**COUNTED, "window": HOURLY, "clock": "slowest", "into": OUT}, ("/clock", "slowest_without_idle")),
        ({"joins": [ADS], "select": SELECT, "clock": "slowest", "idle": {"after": "1m"}}, ("/clock", "slowest_without_clock")),
        ({**COUNTED, "window": {**HOURLY, "retention": "8d"}}, ("/window/retention", "retention_without_table")),
        ({**COUNTED, "suppress": {**LIMITED, "buffer": {"when_full": "emit_early"}}, "into": OUT},
         ("/suppress/buffer", "buffer_without_bound")),
        ({"select": SELECT, "late_records": {"max_rows": 5}}, ("/late_records", "late_records_without_late")),
        ({"joins": [{**ADS, "grace": "1m", "unversioned_ok": True}]}, ("/joins/0/unversioned_ok", "unsupported_option")),
        ({"joins": [{**OWNERS, "unversioned_ok": True}]}, ("/joins/0/unversioned_ok", "unsupported_option")),
        ({"joins": [{**OWNERS, "grace": "1m", "unversioned_ok": True, "type": "left", "expired": "drop"}]},
         ("/joins/0/expired", "unsupported_option")),
        ({"joins": [{**ADS, "expired": "divert"}]}, ("/joins/0/expired", "unsupported_option")),
        ({"joins": [{**ADS, "late": "drop"}]}, ("/joins/0/late", "late_without_grace")),
        ({"group_by": ["tags"], "aggregate": {"n": "count(*)"}}, ("/group_by/0", "type_mismatch")),
    ],
)  # fmt: skip
def test_what_streams_cannot_do_is_refused_with_a_pointer(parts: dict[str, Any], expected: tuple[str, str]) -> None:
    assert expected in refused(**parts)


def test_an_eager_join_waits_a_day_for_partners_and_marks_its_rows() -> None:
    def join(**within: str) -> StreamStreamJoin:
        given = {**CLICKS, "type": "left", "within": {**WITHIN, **within}}
        select = {"ad": "views.ad", "how": '"$state"'} if "unmatched" in within else {"ad": "views.ad"}
        operator = build(joins=[given], select=select).stages[0].operators[0]
        assert isinstance(operator, StreamStreamJoin)
        return operator

    eager = join(unmatched="eager")
    assert (eager.is_eager, eager.grace_ms) == (True, 86_400_000)
    assert join(unmatched="eager", grace="1h").grace_ms == 3_600_000
    assert (join().is_eager, join().grace_ms) == (False, 0)


def test_only_an_eager_join_has_a_state_and_changing_to_it_needs_new_state() -> None:
    joins = [
        {**CLICKS, "type": "left", "within": {**WITHIN, "grace": "1d", "unmatched": each}} for each in ("eager", "when_closed")
    ]
    eager, waiting = (build(joins=[each], select=SELECT) for each in joins)
    assert state_fingerprint(eager) != state_fingerprint(waiting)
    assert ("/select/how", "unknown_column") in refused(joins=[joins[1]], select={"how": '"$state"'})

"""Warnings: where lateness depends on what a user would not expect, and where the rules make it right."""

from __future__ import annotations

from typing import Any

import pytest

from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition
from engine.plan.build import build_plan, normalise
from engine.plan.catalog import CatalogEntry, derived_entry, source_entry
from engine.plan.warnings import DefinitionWarning, warnings_of

COLUMNS = {"id": "string", "ad": "string", "at": "bigint"}
DATED = StreamDefinition.model_validate({"key": ["id"], "columns": COLUMNS, "event_time": "at"})
ADS = {
    "key": ["ad"], "columns": {"ad": "string", "owner": "string", "at": "bigint"}, "event_time": "at",
    "versioned": {"history_retention": "1h"},
}  # fmt: skip
SOURCES: dict[str, CatalogEntry] = {
    "views": source_entry("views", DATED),
    "clicks": source_entry("clicks", DATED),
    "arrivals": source_entry("arrivals", StreamDefinition.model_validate({"key": ["id"], "columns": COLUMNS})),
    "names": source_entry(
        "names", TableDefinition.model_validate({"key": ["ad"], "columns": {"ad": "string", "name": "string"}})
    ),
    "named": source_entry(
        "named",
        TableDefinition.model_validate(
            {"key": ["ad"], "columns": {"ad": "string", "name": "string"}, "versioned": {"history_retention": "1h"}}
        ),
    ),
    "ads": source_entry("ads", TableDefinition.model_validate(ADS)),
}
FROM = {"from": {"stream": "views"}}
SELECT = {"id": "views.id", "ad": "views.ad", "at": "views.at"}
GRACE = {"table": "ads", "on": "views.ad = ads.ad", "grace": "10m"}
ON_ARRIVAL = {"table": "ads", "on": "views.ad = ads.ad"}
CLICKS = {"stream": "clicks", "as": "c", "on": "views.id = c.id", "within": {"before": "1m", "after": "5m", "grace": "30s"}}
COUNTED = {"group_by": ["ad"], "aggregate": {"id": "max(id)", "n": "count(*)"}}
HOURLY = {"type": "tumbling", "size": "1h"}
FINAL = {"mode": "until_window_closes"}
LIMITED = {"mode": "until_time_limit", "limit": "10m"}

PRODUCERS: dict[str, dict[str, Any]] = {
    "filter": {"where": "ad = 'x'"},
    "join on arrival": {"joins": [ON_ARRIVAL], "select": SELECT},
    "inner stream join": {"joins": [CLICKS], "select": SELECT},
    "windows with every change": {**COUNTED, "window": HOURLY},
    "running aggregation": COUNTED,
    "grace join": {"joins": [GRACE], "select": SELECT},
    "hold": {"joins": [{**GRACE, "hold": {"at_most": "5m"}}], "select": SELECT},
    "left stream join": {"joins": [{**CLICKS, "type": "left"}], "select": SELECT},
    "outer stream join": {"joins": [{**CLICKS, "type": "outer"}], "select": SELECT},
    "suppress": {**COUNTED, "suppress": LIMITED},
    "suppress by wall clock": {**COUNTED, "suppress": {**LIMITED, "mode": "until_wall_clock_time_limit"}},
    "final windows": {**COUNTED, "window": {**HOURLY, "grace": "5m"}, "suppress": FINAL},
    "corrections": {**COUNTED, "window": HOURLY, "suppress": {"mode": "window_end_then_corrections"}},
    "sessions": {**COUNTED, "window": {"type": "session", "gap": "5m"}, "suppress": FINAL},
}
IN_ORDER = ("filter", "join on arrival", "inner stream join", "windows with every change", "running aggregation")
REORDERING = {
    "left stream join": 330, "outer stream join": 330, "suppress": 600, "suppress by wall clock": 600, "final windows": 3_600,
    "corrections": 3_600,
}  # fmt: skip
WAITS = {
    "grace join": 600, "hold": 900, "left stream join": 330, "outer stream join": 330, "suppress": 600,
    "suppress by wall clock": 600, "final windows": 3_900, "corrections": 3_600, "sessions": 300,
}  # fmt: skip
"""Producer → for how long it holds back, in seconds."""


class Pipe:
    """Queries one behind the other; each reads the stream of the one before."""

    def __init__(self) -> None:
        self.catalog = dict(SOURCES)
        self.definitions: dict[str, QueryDefinition] = {}

    def add(self, name: str, **body: Any) -> list[DefinitionWarning]:
        given = {"name": name, **FROM, "into": {"stream": name}, **body}
        definition = normalise(QueryDefinition.model_validate(given))
        plan = build_plan(definition, self.catalog)
        found = warnings_of(definition, plan, self.catalog, self.definitions.get)
        self.catalog[plan.output.name] = derived_entry(plan)
        self.definitions[plan.output.name] = definition
        return found


def behind(producer: str, tasks: int = 4, **reader: Any) -> list[tuple[str, str]]:
    pipe = Pipe()
    pipe.add("mid", tasks=tasks, **PRODUCERS[producer])
    return codes(pipe.add("last", **{"from": {"stream": "mid", "as": "views"}, **reader}))


def codes(found: list[DefinitionWarning]) -> list[tuple[str, str]]:
    return [(warning.pointer, warning.code) for warning in found]


def windows(seconds: int = 0, **parts: Any) -> dict[str, Any]:
    return {"group_by": ["id"], "aggregate": {"n": "count(*)"}, "window": {**HOURLY, "grace": f"{seconds}s"}, **parts}


@pytest.mark.parametrize("producer", IN_ORDER)
def test_a_window_over_what_keeps_the_order_of_its_source_needs_no_warning(producer: str) -> None:
    assert behind(producer, **windows()) == []


@pytest.mark.parametrize("producer", sorted(WAITS))
def test_a_grace_below_the_wait_of_a_producer_with_several_tasks_is_warned_about(producer: str) -> None:
    assert behind(producer, **windows(WAITS[producer] - 1)) == [("/window/grace", "lateness_depends_on_tasks")]


@pytest.mark.parametrize("producer", sorted(WAITS))
def test_a_grace_as_long_as_the_producers_wait_is_not(producer: str) -> None:
    assert behind(producer, **windows(WAITS[producer])) == []


@pytest.mark.parametrize("producer", sorted(WAITS))
def test_no_grace_over_a_producer_with_one_task_is_warned_about_where_that_task_reorders(producer: str) -> None:
    expected = [("/window/grace", "no_grace_on_derived")] if producer in REORDERING else []
    assert behind(producer, tasks=1, **windows()) == expected


def test_no_grace_over_several_tasks_that_wait_has_two_ways_out_and_so_two_warnings() -> None:
    assert behind("grace join", **windows()) == [
        ("/window/grace", "lateness_depends_on_tasks"),
        ("/window/grace", "no_grace_on_derived"),
    ]


def test_a_reader_without_a_clock_is_not_warned() -> None:
    assert behind("final windows", where="ad = 'x'") == []


def test_a_grace_join_over_what_waits_is_warned_at_its_own_grace() -> None:
    join = {**GRACE, "grace": "5m"}
    assert behind("grace join", joins=[join], select=SELECT) == [("/joins/0/grace", "lateness_depends_on_tasks")]


def test_a_join_with_grace_0s_that_joins_late_records_anyway_decides_nothing_by_lateness() -> None:
    assert behind("grace join", joins=[{**GRACE, "grace": "0s"}], select=SELECT) == []


def test_a_join_with_grace_0s_that_drops_late_records_is_warned() -> None:
    found = behind("grace join", joins=[{**GRACE, "grace": "0s", "late": "drop"}], select=SELECT)
    assert ("/joins/0/grace", "no_grace_on_derived") in found


def test_a_stream_join_tolerates_its_range_beside_its_grace() -> None:
    wide = {**CLICKS, "within": {"before": "10m", "after": "10m", "grace": "0s"}}
    assert behind("grace join", joins=[wide], select=SELECT) == []
    assert behind("grace join", joins=[CLICKS], select=SELECT) == [("/joins/0/within/grace", "lateness_depends_on_tasks")]


@pytest.mark.parametrize("window", [{"type": "session", "gap": "10m"}, {"type": "sliding", "difference": "10m"}])
def test_sessions_and_sliding_windows_tolerate_their_length_beside_their_grace(window: dict[str, str]) -> None:
    assert behind("grace join", **windows(window=window)) == []


def test_waits_add_up_along_a_chain_and_reach_through_queries_that_keep_the_order() -> None:
    pipe = Pipe()
    pipe.add("first", **PRODUCERS["grace join"])
    pipe.add("second", **{"from": {"stream": "first", "as": "views"}, **PRODUCERS["filter"]})
    pipe.add("third", **{"from": {"stream": "second", "as": "views"}, "joins": [{**GRACE, "grace": "5m"}], "select": SELECT})
    last = {"from": {"stream": "third", "as": "views"}}
    assert codes(pipe.add("enough", **last, **windows(900))) == []
    assert codes(pipe.add("too_short", **last, **windows(899))) == [("/window/grace", "lateness_depends_on_tasks")]


def test_a_table_that_a_stream_looks_up_adds_nothing() -> None:
    pipe = Pipe()
    pipe.add("owners", **COUNTED, suppress=LIMITED, into={"table": "owners"})
    join = {"table": "owners", "on": "views.ad = owners.ad"}
    assert codes(pipe.add("last", joins=[join], select=SELECT)) == []
    assert codes(pipe.add("windows", **windows(joins=[join], group_by=["views.id"]))) == []


def test_a_window_behind_a_left_join_of_streams_in_the_same_query_is_warned_without_a_grace() -> None:
    found = Pipe().add("q", tasks=1, joins=[{**CLICKS, "type": "left"}], **windows(group_by=["views.id"]))
    assert codes(found) == [("/window/grace", "no_grace_behind_join")]


def test_a_window_in_other_tasks_than_the_grace_join_before_it_is_warned_and_one_in_the_same_is_not() -> None:
    other = windows(60, joins=[GRACE], group_by=["views.id"])
    assert codes(Pipe().add("q", **other)) == [("/window/grace", "lateness_depends_on_tasks")]
    assert codes(Pipe().add("q", tasks=1, **other)) == []
    assert codes(Pipe().add("q", **windows(60, joins=[GRACE], group_by=["views.ad"]))) == []


def test_a_window_over_a_stream_without_an_event_time_is_warned_at_the_stream() -> None:
    assert codes(Pipe().add("q", **{"from": {"stream": "arrivals"}}, **windows())) == [("/from/stream", "event_time_is_arrival")]


def test_a_grace_over_a_joined_stream_without_an_event_time_is_warned_at_that_stream() -> None:
    join = {**CLICKS, "stream": "arrivals"}
    assert codes(Pipe().add("q", joins=[join], select=SELECT)) == [("/joins/0/stream", "event_time_is_arrival")]


def test_the_time_of_arrival_is_seen_through_derived_streams_and_the_source_is_named() -> None:
    pipe = Pipe()
    assert pipe.add("copied", **{"from": {"stream": "arrivals"}}) == []
    (found,) = pipe.add("q", **{"from": {"stream": "copied"}}, **windows())
    assert (found.pointer, found.code) == ("/from/stream", "event_time_is_arrival")
    assert found.cure == "register 'arrivals' with `event_time`"


def test_a_warning_says_who_waits_how_long_and_what_can_be_done() -> None:
    pipe = Pipe()
    pipe.add("mid", **PRODUCERS["grace join"])
    (found,) = pipe.add("last", **{"from": {"stream": "mid"}}, **windows(60))
    assert found.detail == (
        "the window reads what the grace 10m of the join 'ads' of query 'mid' lets go after waiting up to 10m. Each task waits by its own "
        "stream time (T1), so which records are late here depends on the number of tasks"
    )
    assert found.cure == 'give a grace of at least 10m, or run what waits with "tasks": 1'


@pytest.mark.parametrize(("table", "detail"), [("named", "does not meet that row"), ("names", "in the order of event time")])
def test_a_table_without_an_event_time_that_a_dated_stream_looks_up_is_warned_about(table: str, detail: str) -> None:
    join = {"table": table, "as": "n", "on": "views.ad = n.ad"}
    (found,) = Pipe().add("q", joins=[join], select=SELECT)
    assert (found.pointer, found.code) == ("/joins/0/table", "table_dated_by_arrival")
    assert detail in found.detail
    assert f"register '{table}' with an `event_time`" in found.cure


def test_a_table_without_an_event_time_needs_no_warning_where_the_stream_is_dated_by_arrival_too() -> None:
    join = {"table": "named", "as": "n", "on": "arrivals.ad = n.ad"}
    assert Pipe().add("q", **{"from": {"stream": "arrivals"}}, joins=[join], select={"id": "arrivals.id"}) == []


def test_a_table_with_an_event_time_needs_no_warning() -> None:
    assert Pipe().add("q", joins=[ON_ARRIVAL], select=SELECT) == []


def test_the_time_of_arrival_is_seen_through_a_derived_table_unless_its_query_gives_a_time() -> None:
    join = {"table": "mid", "as": "m", "on": "views.id = m.id"}

    def over(**into: Any) -> list[DefinitionWarning]:
        pipe = Pipe()
        pipe.add("mid", **{"from": {"stream": "arrivals"}, "group_by": ["id"], "aggregate": {"at": "max(at)"}, "into": into})
        return pipe.add("last", joins=[join], select=SELECT)

    (found,) = over(table="mid")
    assert (found.code, "'arrivals' names no" in found.detail) == ("table_dated_by_arrival", True)
    assert over(table="mid", event_time="at") == []


def test_the_history_of_a_running_aggregation_of_a_stream_is_warned_about_and_that_of_windows_is_not() -> None:
    into = {"table": "q", "versioned": {"history_retention": "1d"}}
    (found,) = Pipe().add("q", **COUNTED, into=into)
    assert (found.pointer, found.code) == ("/into/versioned", "history_by_change")
    assert Pipe().add("q", **COUNTED, into={"table": "q"}) == []
    assert Pipe().add("q", **COUNTED, window=HOURLY, into=into) == []

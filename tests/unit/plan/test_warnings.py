"""Warnings: where times, matches or history are not what a user would expect."""

from __future__ import annotations

from typing import Any

import pytest

from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition
from engine.plan.build import build_plan, normalise
from engine.plan.catalog import CatalogEntry, derived_entry, source_entry
from engine.plan.waits import total_ms, waits_behind
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
    "old_ads": source_entry("old_ads", TableDefinition.model_validate({**ADS, "versioned": {"history_retention": "9h"}})),
    "ads": source_entry("ads", TableDefinition.model_validate(ADS)),
}
FROM = {"from": {"stream": "views"}}
SELECT = {"id": "views.id", "ad": "views.ad", "at": "views.at"}
GRACE = {"table": "ads", "on": "views.ad = ads.ad", "grace": "10m"}
ON_ARRIVAL = {"table": "ads", "on": "views.ad = ads.ad"}
CLICKS = {"stream": "clicks", "as": "c", "on": "views.id = c.id", "within": {"before": "1m", "after": "5m", "grace": "30s"}}
EAGER = {**CLICKS, "type": "left", "within": {"before": "1m", "after": "5m", "unmatched": "eager"}}
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
    "right stream join": {"joins": [{**CLICKS, "type": "right"}], "select": {"id": "c.id", "ad": "c.ad", "at": "c.at"}},
    "eager stream join": {"joins": [EAGER], "select": SELECT},
    "outer stream join": {"joins": [{**CLICKS, "type": "outer"}], "select": SELECT},
    "suppress": {**COUNTED, "suppress": LIMITED},
    "suppress by wall clock": {**COUNTED, "suppress": {**LIMITED, "mode": "until_wall_clock_time_limit"}},
    "final windows": {**COUNTED, "window": {**HOURLY, "grace": "5m"}, "suppress": FINAL},
    "corrections": {**COUNTED, "window": {**HOURLY, "grace": "5m"}, "suppress": {"mode": "window_end_then_corrections"}},
    "final sliding": {**COUNTED, "window": {"type": "sliding", "difference": "5m", "grace": "1m"}, "suppress": FINAL},
    "sessions": {**COUNTED, "window": {"type": "session", "gap": "5m", "grace": "1m"}, "suppress": FINAL},
    "sessions with every change": {**COUNTED, "window": {"type": "session", "gap": "5m", "grace": "1m"}},
}
WAITS = {
    "grace join": 600, "hold": 900, "left stream join": 330, "right stream join": 90, "outer stream join": 330, "suppress": 600,
    "suppress by wall clock": 600, "final windows": 3_900, "corrections": 3_900, "final sliding": 360, "sessions": 360,
    "sessions with every change": 300,
}  # fmt: skip
"""Producer → for how long it waits (T1c, T11), in seconds; the others do not."""


class Pipe:
    """Queries one behind the other; each reads the stream of the one before."""

    def __init__(self) -> None:
        self.catalog = dict(SOURCES)
        self.definitions: dict[str, QueryDefinition] = {}

    def add(self, name: str, **body: Any) -> list[DefinitionWarning]:
        given = {"name": name, **FROM, "into": {"stream": name}, **body}
        definition = normalise(QueryDefinition.model_validate(given))
        plan = build_plan(definition, self.catalog)
        found = warnings_of(definition, self.catalog, self.definitions.get)
        self.catalog[plan.output.name] = derived_entry(plan)
        self.definitions[plan.output.name] = definition
        self.plan = plan
        return found

    def waits_ms(self, name: str) -> int:
        return total_ms(waits_behind(self.definitions[name], self.definitions.get))


def codes(found: list[DefinitionWarning]) -> list[tuple[str, str]]:
    return [(warning.pointer, warning.code) for warning in found]


def windows(seconds: int = 0, **parts: Any) -> dict[str, Any]:
    return {"group_by": ["id"], "aggregate": {"n": "count(*)"}, "window": {**HOURLY, "grace": f"{seconds}s"}, **parts}


@pytest.mark.parametrize("producer", sorted(PRODUCERS))
def test_a_query_waits_as_its_plan_does(producer: str) -> None:
    pipe = Pipe()
    assert pipe.add("mid", **PRODUCERS[producer]) == []
    assert pipe.waits_ms("mid") == 1_000 * WAITS.get(producer, 0)
    assert pipe.waits_ms("mid") == sum(each.waits_ms for stage in pipe.plan.stages for each in stage.operators)


@pytest.mark.parametrize("producer", sorted(PRODUCERS))
@pytest.mark.parametrize("tasks", [1, 4])
def test_no_grace_is_needed_behind_what_waits_whatever_its_tasks(producer: str, tasks: int) -> None:
    """On time stays on time (P15), and tasks are a matter of speed only (T1)."""
    pipe = Pipe()
    pipe.add("mid", tasks=tasks, **PRODUCERS[producer])
    assert pipe.add("last", **{"from": {"stream": "mid", "as": "views"}}, **windows()) == []


def test_waits_add_up_along_a_chain_and_reach_through_queries_that_do_not_wait() -> None:
    pipe = Pipe()
    pipe.add("first", **PRODUCERS["grace join"])
    pipe.add("second", **{"from": {"stream": "first", "as": "views"}, **PRODUCERS["filter"]})
    pipe.add("third", **{"from": {"stream": "second", "as": "views"}, "joins": [{**GRACE, "grace": "5m"}], "select": SELECT})
    pipe.add("last", **{"from": {"stream": "third", "as": "views"}}, **windows(60, suppress=FINAL))
    assert pipe.waits_ms("last") == 1_000 * (600 + 300 + 3_660)


def test_of_two_streams_that_are_joined_the_one_that_waited_longer_counts() -> None:
    """T1d. The join's left side waits in the query itself, its right one before it."""
    pipe = Pipe()
    pipe.add("slow", **PRODUCERS["final windows"])
    late = {"stream": "slow", "as": "c", "on": "views.ad = c.ad", "within": {"before": "1m", "after": "1m"}}
    pipe.add("q", joins=[GRACE, {**late, "type": "left"}], select=SELECT)
    assert pipe.waits_ms("q") == 1_000 * (3_900 + 60)
    pipe.add("r", joins=[{**GRACE, "grace": "2h", "table": "old_ads", "as": "ads"}, {**late, "type": "inner"}], select=SELECT)
    assert pipe.waits_ms("r") == 7_200_000


def test_waits_before_a_new_event_time_do_not_count() -> None:
    """T1c: behind ``into.event_time`` a time of its own."""
    pipe = Pipe()
    pipe.add("mid", **PRODUCERS["grace join"], into={"stream": "mid", "event_time": "at"})
    pipe.add("last", **{"from": {"stream": "mid", "as": "views"}}, **windows())
    assert pipe.waits_ms("last") == 0


def test_a_table_that_a_stream_looks_up_adds_nothing() -> None:
    pipe = Pipe()
    pipe.add("owners", **COUNTED, suppress=LIMITED, into={"table": "owners"})
    pipe.add("last", joins=[{"table": "owners", "on": "views.ad = owners.ad"}], select=SELECT)
    assert pipe.waits_ms("last") == 0


def daily(query: str, grace: str) -> dict[str, Any]:
    return {
        **windows(),
        "from": {"stream": query, "as": "views"},
        "window": {**HOURLY, "size": "1d", "grace": grace},
        "suppress": FINAL,
    }


def test_waits_of_more_than_a_day_are_warned_about_with_each_of_them_and_what_can_be_done() -> None:
    pipe = Pipe()
    pipe.add("mid", **PRODUCERS["grace join"])
    (found,) = pipe.add("last", **daily("mid", "1h"))
    assert (found.pointer, found.code) == ("/window/grace", "waits_long")
    assert found.detail == (
        "results come up to 26h of stream time after their events, because waits add up along the chain: 10m for the grace of the join "
        "'ads' of 'mid', 25h for the final windows of 'last'"
    )
    assert (
        found.cure
        == "use shorter graces, windows and limits where results are needed earlier; nothing where they may come so late"
    )


def test_one_wait_that_the_definition_itself_names_is_not_warned_about() -> None:
    assert Pipe().add("q", **daily("views", "3d")) == []


def test_a_query_that_does_not_wait_itself_is_warned_at_what_it_reads() -> None:
    pipe = Pipe()
    pipe.add("days", **daily("views", "1h"))
    assert codes(pipe.add("last", **{"from": {"stream": "days"}})) == [("/from/stream", "waits_long")]


def test_waits_of_a_day_together_are_not_warned_about() -> None:
    pipe = Pipe()
    pipe.add("mid", **PRODUCERS["grace join"])
    assert pipe.add("last", **{**daily("mid", "0s"), "window": {**HOURLY, "size": "23h", "grace": "50m"}}) == []


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

"""The rules that explain an edit agree with the comparison of plans that decides it."""

from __future__ import annotations

from typing import Any

import pytest

from app.catalog.stored.edit_rules import EditKind, classify
from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition
from engine.plan.build import build_plan, fits_stored_state, normalise
from engine.plan.catalog import source_entry

_COLUMNS = {"origin": "string", "n": "bigint", "at": "timestamp"}
_STREAM = StreamDefinition.model_validate({"key": ["origin"], "columns": _COLUMNS, "event_time": "at"})
_TABLE = TableDefinition.model_validate(
    {"key": ["origin"], "columns": _COLUMNS, "event_time": "at", "versioned": {"history_retention": "2d"}}
)
_CATALOG = {
    "flights": source_entry("flights", _STREAM),
    "others": source_entry("others", _STREAM),
    "weather": source_entry("weather", _TABLE),
    "airports": source_entry("airports", _TABLE),
}
_HOLD = {"until": "table_time", "at_most": "10m"}
_JOIN: dict[str, Any] = {
    "name": "q",
    "from": {"stream": "flights"},
    "joins": [{"table": "weather", "as": "w", "type": "left", "on": "flights.origin = w.origin", "grace": "1h", "hold": _HOLD}],
    "select": {"origin": "flights.origin", "n": "w.n"},
    "into": {"stream": "q"},
}
_STREAMS: dict[str, Any] = {
    **_JOIN,
    "joins": [
        {
            "stream": "others",
            "as": "w",
            "on": "flights.origin = w.origin",
            "within": {"before": "1m", "after": "1m", "grace": "1m"},
        }
    ],
}
_TABLES: dict[str, Any] = {
    "name": "q",
    "from": {"table": "airports"},
    "joins": [{"table": "weather", "as": "w", "on": "airports.origin = w.origin"}],
    "select": {"origin": "airports.origin", "n": "w.n"},
    "into": {"table": "q", "versioned": {"history_retention": "2d"}},
}
_WINDOWS: dict[str, Any] = {
    "name": "q",
    "from": {"stream": "flights"},
    "group_by": ["origin"],
    "window": {"type": "tumbling", "size": "1h", "grace": "30m", "retention": "7d"},
    "aggregate": {"n": "count(*)"},
    "into": {"table": "q"},
}
_LIMITED = {**_WINDOWS, "suppress": {"mode": "until_time_limit", "limit": "5m"}}
_BOUNDED = {**_WINDOWS, "suppress": {"mode": "until_time_limit", "limit": "5m", "buffer": {"max_rows": 9}}}
_WALL = {**_WINDOWS, "suppress": {"mode": "until_wall_clock_time_limit", "limit": "5m"}}

_EDITS: list[tuple[dict[str, Any], str, Any, bool]] = [
    (_JOIN, "/joins/0/grace", "2h", True),
    (_JOIN, "/joins/0/grace", "0s", True),
    (_JOIN, "/joins/0/late", "divert", True),
    (_JOIN, "/joins/0/expired", "drop", True),
    (_JOIN, "/joins/0/hold/at_most", "1h", True),
    (_JOIN, "/joins/0/hold/max_rows", 7, True),
    (_JOIN, "/joins/0/hold/slack", "1m", True),
    (_JOIN, "/joins/0/hold/until", "caught_up", True),
    (_JOIN, "/joins/0/hold", None, False),
    (_JOIN, "/joins/0/type", "inner", False),
    (_JOIN, "/idle", {"after": "5m"}, True),
    ({**_JOIN, "idle": {"after": "5m"}}, "/clock", "slowest", True),
    (_JOIN, "/start", "latest", False),
    (_JOIN, "/where", "flights.n > 1", False),
    (_JOIN, "/late_records/max_rows", 5, True),
    (_JOIN, "/late_records/retention", "1d", True),
    (_STREAMS, "/joins/0/within/grace", "9m", True),
    (_STREAMS, "/joins/0/within/before", "9m", False),
    (_TABLES, "/joins/0/type", "left", False),
    (_TABLES, "/into/versioned", None, False),
    (_WINDOWS, "/window/grace", "1h", True),
    (_WINDOWS, "/window/grace", "0s", True),
    (_WINDOWS, "/window/retention", "9d", True),
    (_WINDOWS, "/window/size", "2h", False),
    (_WINDOWS, "/group_by", ["origin", "at"], False),
    (_WINDOWS, "/aggregate", {"n": "sum(n)"}, False),
    (_WINDOWS, "/having", "n > 1", False),
    (_WINDOWS, "/suppress/mode", "until_window_closes", False),
    (_LIMITED, "/suppress/limit", "9m", True),
    (_LIMITED, "/suppress/buffer", {"max_rows": 5}, False),  # S4: a suppression with bounds works in one task
    (_BOUNDED, "/suppress/buffer", {"max_bytes": 5}, True),
    (_BOUNDED, "/suppress/buffer/max_rows", 5, True),
    (_BOUNDED, "/suppress/buffer/when_full", "emit_early", True),
    (_BOUNDED, "/suppress/buffer", None, False),
    (_BOUNDED, "/suppress/buffer/max_bytes", 5, True),
    (_WALL, "/suppress/limit", "9m", True),
    (_WALL, "/suppress/event_driven", True, True),
    (_WALL, "/suppress/buffer", {"max_bytes": 500, "when_full": "emit_early"}, False),
    (_WALL, "/window/grace", "1h", True),
]  # fmt: skip


def stored(body: dict[str, Any]) -> tuple[QueryDefinition, dict[str, Any]]:
    definition = normalise(QueryDefinition.model_validate(body))
    return definition, definition.model_dump(mode="json", by_alias=True)


def edited(body: dict[str, Any], pointer: str, value: Any) -> dict[str, Any]:
    """Return the definition as stored, with another value at the pointer."""
    _, spelled_out = stored(body)
    at: Any = spelled_out
    *path, last = pointer.split("/")[1:]
    for part in path:
        at = at[int(part)] if isinstance(at, list) else at[part]
    at[last] = value
    return spelled_out


@pytest.mark.parametrize(("body", "pointer", "value", "is_in_place"), _EDITS)
def test_the_reason_given_for_one_part_agrees_with_the_plans(
    body: dict[str, Any], pointer: str, value: Any, is_in_place: bool
) -> None:
    before, spelled_out = stored(body)
    after, wanted = stored(edited(body, pointer, value))
    fits = fits_stored_state(build_plan(before, _CATALOG), build_plan(after, _CATALOG))
    assert fits is is_in_place
    edit = classify(spelled_out, wanted, is_state_compatible=fits)
    assert edit.kind is (EditKind.IN_PLACE if is_in_place else EditKind.NEEDS_NEW_STATE)
    # Beside an edit that surely needs new state, each part still says the same of itself.
    beside = classify(spelled_out, {**wanted, "from": {"stream": "x"}}, is_state_compatible=False)
    kinds = {change.kind for change in beside.changes if change.pointer.startswith(pointer)}
    assert kinds == {edit.kind}


@pytest.mark.parametrize(("retention", "is_in_place"), [("3d", False), ("2d", True)])
def test_a_result_may_keep_less_history_but_not_more_than_it_has(retention: str, is_in_place: bool) -> None:
    body = edited(_TABLES, "/into/versioned/history_retention", "2d")
    longer = edited(_TABLES, "/into/versioned/history_retention", "4d")
    wanted = edited(_TABLES, "/into/versioned/history_retention", retention)
    plans = [build_plan(QueryDefinition.model_validate(each), _CATALOG) for each in (body, longer, wanted)]
    assert fits_stored_state(plans[0], plans[2]) is is_in_place
    assert fits_stored_state(plans[1], plans[2])


@pytest.mark.parametrize("body", [_JOIN, _STREAMS, _TABLES, _WINDOWS, _LIMITED, _WALL])
def test_state_fits_another_number_of_tasks(body: dict[str, Any]) -> None:
    before, spelled_out = stored(body)
    after, wanted = stored(edited(body, "/tasks", 7))
    fits = fits_stored_state(build_plan(before, _CATALOG), build_plan(after, _CATALOG))
    assert classify(spelled_out, wanted, is_state_compatible=fits).kind is EditKind.REPARTITION

"""What is kept of a refused record: its values and its event time."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from app.lateness.record_rules import event_time_of, has_all
from engine.definition.relations import StreamDefinition
from engine.plan.catalog import source_entry

ARRIVED = datetime(2025, 6, 1, tzinfo=UTC)
NOON = 1_357_041_600_000


def event_time(kind: str | None, record: Any, **options: Any) -> int | None:
    columns = {"id": "string"} if kind is None else {"id": "string", "at": kind}
    given = {"columns": columns, **({} if kind is None else {"event_time": "at"}), **options}
    relation = source_entry("s", StreamDefinition.model_validate(given)).relation
    return event_time_of(record if isinstance(record, str) else json.dumps(record), relation, ARRIVED)


@pytest.mark.parametrize(
    ("kind", "written", "options"),
    [
        ("timestamp", "2013-01-01T12:00:00Z", {}),
        ("timestamp", "2013-01-01 12:00:00", {}),
        ("bigint", NOON, {}),
        ("bigint", NOON // 1000, {"event_time_unit": "s"}),
        ("bigint", NOON * 1000, {"event_time_unit": "us"}),
        ("bigint", NOON * 1_000_000, {"event_time_unit": "ns"}),
        ("string", "2013-01-01T12:00:00Z", {}),
        ("string", "01.01.2013 12:00", {"event_time_format": "%d.%m.%Y %H:%M"}),
    ],
)
def test_the_event_time_of_a_refused_record_is_read_as_its_relation_does(kind: str, written: Any, options: Any) -> None:
    assert event_time(kind, {"id": "a", "at": written}, **options) == NOON


@pytest.mark.parametrize("record", [{"at": "noon"}, {"at": None}, {"at": True}, {}, [], '{"at": "2013-01-01T12', "no JSON"])
def test_a_time_that_cannot_be_read_is_none(record: Any) -> None:
    assert event_time("timestamp", record) is None


def test_without_a_column_the_records_own_time_counts_and_else_its_arrival() -> None:
    assert event_time(None, {"id": "a", "$event_time_ms": NOON}) == NOON
    assert event_time(None, {"id": "a"}) == round(ARRIVED.timestamp() * 1000)
    assert event_time(None, "no JSON") is None


@pytest.mark.parametrize(
    ("record", "has"),
    [
        ('{"a":"x","b":1,"c":2}', True), ('{"a":"x"}', False), ('{"a":"x","b":2}', False), ('["x"]', False), ('{"a":"x","b":1', False),
    ],
)  # fmt: skip
def test_a_refused_record_is_of_a_key_only_if_it_has_all_of_it(record: str, has: bool) -> None:
    assert has_all(record, {"a": "x", "b": 1}) == has


def test_a_column_that_a_record_leaves_out_is_null_and_no_values_match_nothing() -> None:
    assert has_all('{"a":"x"}', {"a": "x", "b": None})
    assert not has_all('{"a":"x"}', {})

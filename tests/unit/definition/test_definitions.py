"""Durations, and that faults in the shape of a definition get the pointer a user can follow."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engine.definition.problems import problems_of
from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition
from engine.expressions.durations import MAX_MS, format_duration, parse_duration
from engine.expressions.model import Model

QUERY = {"name": "q", "from": {"stream": "s"}, "into": {"stream": "out"}}
COLUMNS = {"a": "int"}


def refused(model: type[Model], **body: Any) -> set[tuple[str, str]]:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(body)
    return {(problem.pointer, problem.code) for problem in problems_of(caught.value)}


@given(st.integers(0, MAX_MS))
def test_every_duration_reads_back_from_its_text(ms: int) -> None:
    assert parse_duration(format_duration(ms)) == ms


@pytest.mark.parametrize(
    ("text", "ms", "canonical"),
    [
        ("500ms", 500, "500ms"), ("90s", 90_000, "90s"), ("1h30m", 5_400_000, "90m"), ("24h", 86_400_000, "1d"),
        ("0s", 0, "0s"), ("0ms", 0, "0s"), ("PT10S", 10_000, "10s"), ("P1DT1H", 90_000_000, "25h"), ("P2W", 1_209_600_000, "14d"),
        ("PT0.5S", 500, "500ms"),
    ],
)  # fmt: skip
def test_a_duration_has_a_canonical_text(text: str, ms: int, canonical: str) -> None:
    assert (parse_duration(text), format_duration(parse_duration(text))) == (ms, canonical)


@pytest.mark.parametrize(
    "text",
    [
        "", "soon", "10", "1.5h", "-5s", "-PT1S", "P", "PT", "P1DT", "P1Y", "P1M", "PT0.0001S", "１s", "1w", "101y", "99999d",
        "9" * 400 + "s",
    ],
)  # fmt: skip
def test_what_is_no_fixed_number_of_milliseconds_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"bogus": 1}, ("/bogus", "unknown_field")),
        ({"name": "Bad-Name"}, ("/name", "malformed_name")),
        ({"tasks": 0}, ("/tasks", "invalid_value")),
        ({"start": "sometime"}, ("/start", "unknown_value")),
        ({"start": {"at": "soon"}}, ("/start/at", "invalid_value")),
        ({"start": {"at": 12}}, ("/start/at", "invalid_value")),
        ({"start": 12}, ("/start", "invalid_value")),
        ({"joins": [{"table": "t", "grace": 5}]}, ("/joins/0/grace", "duration_malformed")),
        ({"joins": [{"table": "t", "late": "x"}]}, ("/joins/0/late", "unknown_value")),
        ({"joins": [{}]}, ("/joins/0", "invalid_value")),
        ({"window": {"type": "tumbling", "size": "soon"}}, ("/window/size", "duration_malformed")),
        ({"into": {}}, ("/into", "invalid_value")),
        ({"aggregate": {"n.n": "count(*)"}}, ("/aggregate/n.n", "malformed_name")),
        ({"select": {"x": "1" * 20_000}}, ("/select/x", "expression_too_long")),
    ],
)
def test_a_malformed_query_is_refused_with_a_pointer(parts: dict[str, Any], expected: tuple[str, str]) -> None:
    assert expected in refused(QueryDefinition, **{**QUERY, **parts})


def test_every_fault_of_shape_is_reported_at_once_and_by_the_names_the_user_wrote() -> None:
    found = refused(QueryDefinition, **{**QUERY, "from": {"stream": "s", "as": "Bad"}, "tasks": 0, "start": {"at": "x"}})
    assert found == {("/from/as", "malformed_name"), ("/tasks", "invalid_value"), ("/start/at", "invalid_value")}


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"columns": {"log": "nope"}}, ("/columns/log", "invalid_value")),
        ({"columns": {"_a": "int"}}, ("/columns/_a", "malformed_name")),
        ({"columns": {"a.b": "int"}}, ("/columns/a.b", "malformed_name")),
        ({"columns": {"a/b~": "nope"}}, ("/columns/a~1b~0", "invalid_value")),
        ({"columns": {"*": "int"}}, ("/columns/*", "malformed_name")),
        ({"columns": {"^.*$": "int"}}, ("/columns/^.*$", "malformed_name")),
        ({"columns": {}}, ("/columns", "invalid_value")),
        ({"key": []}, ("/key", "invalid_value")),
        ({"versioned": {}}, ("/versioned/history_retention", "field_missing")),
        (
            {"connector": {"type": "kafka", "topic": "x", "key": {"format": "debezium"}}},
            ("/connector/key/format", "invalid_value"),
        ),
        ({"connector": {"type": "pigeon"}}, ("/connector/type", "unknown_value")),
        ({"connector": {"type": "log", "partitions": 0}}, ("/connector/partitions", "invalid_value")),
        ({"connector": {"type": "files", "path": "/x", "format": "xml"}}, ("/connector/format", "unknown_value")),
    ],
)
def test_a_malformed_table_is_refused_with_a_pointer(parts: dict[str, Any], expected: tuple[str, str]) -> None:
    assert expected in refused(TableDefinition, **{"key": ["a"], "columns": COLUMNS, **parts})


@pytest.mark.parametrize(
    ("connector", "expected"),
    [
        ({"type": "kafka"}, ("/into/connector/topic", "field_missing")),
        ({"type": "pigeon"}, ("/into/connector/type", "unknown_value")),
        ({"type": "files", "path": ""}, ("/into/connector/path", "invalid_value")),
        ({"type": "delta", "path": "x", "every": 5}, ("/into/connector/every", "duration_malformed")),
        ({"type": "kafka", "connection": "c", "topic": "t", "value": {"format": "xml"}}, ("/into/connector/value/format", "unknown_value")),
    ],
)  # fmt: skip
def test_a_malformed_output_is_refused_with_a_pointer(connector: dict[str, Any], expected: tuple[str, str]) -> None:
    body = {"name": "q", "from": {"stream": "s"}, "into": {"stream": "out", "connector": connector}}
    assert expected in refused(QueryDefinition, **body)


def test_a_stream_cannot_be_versioned() -> None:
    body = {"columns": COLUMNS, "versioned": {"history_retention": "1d"}}
    assert refused(StreamDefinition, **body) == {("/versioned", "unknown_field")}


def test_a_definition_shows_every_default_and_reads_back() -> None:
    stored = StreamDefinition.model_validate({"columns": COLUMNS}).model_dump(mode="json", by_alias=True)
    assert stored == {
        "key": [], "columns": {"a": "int"}, "event_time": None, "event_time_format": None,
        "event_time_unit": None,
        "connector": {"type": "log", "partitions": 4, "feed": None, "where": None, "retention": None},
        "max_future_skew": "1d", "on_bad_record": "reject",
    }  # fmt: skip
    assert StreamDefinition.model_validate(stored).model_dump(mode="json", by_alias=True) == stored


def test_a_bigint_event_time_counts_milliseconds_unless_said() -> None:
    body = {"columns": {"a": " BigInt", "b": "timestamp"}, "event_time": "a"}
    assert StreamDefinition.model_validate(body).event_time_unit == "ms"
    assert StreamDefinition.model_validate({**body, "event_time_unit": "s"}).event_time_unit == "s"
    assert StreamDefinition.model_validate({**body, "event_time": "b"}).event_time_unit is None
    assert refused(StreamDefinition, **{**body, "event_time_unit": "minutes"}) == {("/event_time_unit", "unknown_value")}

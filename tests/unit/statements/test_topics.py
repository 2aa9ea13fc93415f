"""What a definition may say of a topic (``engine.definition.sources.kafka``)."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from app.catalog.relations.rules import check_source, source_warnings
from engine.definition.problems import problems_of
from engine.definition.queries import QueryDefinition
from engine.definition.relations import SourceDefinition, StreamDefinition, TableDefinition
from engine.definition.sources.connector import ChangeRules
from engine.errors import DefinitionInvalid
from engine.plan.build import build_plan
from engine.plan.catalog import feed_of, relation_schema, source_entry
from engine.plan.fingerprint import fits_stored_state

CHANGES = {"format": "debezium"}
REGISTRY = {"registry": "r"}


def source(value: dict[str, Any] | None = None, key: dict[str, Any] | None = None) -> SourceDefinition:
    connector = {"type": "kafka", "bootstrap": "b:1", "topic": "t", "value": value, "key": key}
    return StreamDefinition.model_validate({"columns": {"v": "bigint", "at": "bigint"}, "connector": connector})


def faults(definition: SourceDefinition) -> list[tuple[str, str]]:
    try:
        check_source(definition)
    except DefinitionInvalid as error:
        return [(problem.pointer, problem.code) for problem in error.problems]
    return []


def test_names_of_feeds_stay_what_they_are() -> None:
    """Positions, state and what is stored name them."""
    assert feed_of("s", source({"format": "json"})).log_feed == "kafka:b:1/t/b8b1270320ac"
    named = source({"format": "avro", "registry": "r", "has_key": True}, {"format": "kafka"})
    assert feed_of("s", named).log_feed == "kafka:b:1/t/3eccadf27ac9"
    assert feed_of("s", source({"format": "json", "time_unit": "us"})).log_feed == "kafka:b:1/t/be8a1385cf8b"


def test_relations_that_say_another_thing_of_change_events_share_no_order() -> None:
    said = [CHANGES, {**CHANGES, "decimals": "text"}, {**CHANGES, "time_unit": "us"}, {**CHANGES, **REGISTRY, "encoding": "avro"}]
    assert len({feed_of("t", source(value)).name for value in said}) == len(said)
    assert feed_of("t", source({**CHANGES, "encoding": "json"})).name == feed_of("t", source(CHANGES)).name


@pytest.mark.parametrize(
    ("value", "option"),
    [
        ({"format": "json", "delimiter": "|"}, "delimiter"),
        ({"format": "json", "schema": "x"}, "schema"),
        ({"format": "json", "decimals": "text"}, "decimals"),
        ({"format": "json_lenient", "time_unit": "s"}, "time_unit"),
        ({"format": "avro", **REGISTRY, "message": "M"}, "message"),
        ({"format": "avro", **REGISTRY, "encoding": "avro"}, "encoding"),
        ({"format": "protobuf", **REGISTRY, "message": "M"}, "message"),
        ({"format": "protobuf", **REGISTRY, "unwrapped": True}, "unwrapped"),
        ({"format": "delimited", **REGISTRY}, "registry"),
        ({"format": "kafka", "unwrapped": True}, "unwrapped"),
        ({"format": "avro", **REGISTRY, "schema": "x"}, "schema"),
        ({"format": "avro"}, "registry"),
        ({"format": "protobuf"}, "registry"),
    ],
)
def test_an_option_that_means_nothing_or_is_missing_is_told(value: dict[str, Any], option: str) -> None:
    assert faults(source(value)) == [(f"/connector/value/{option}", "invalid_value")]


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ({**CHANGES, "time_unit": "s"}, "/connector/value/time_unit"),
        ({**CHANGES, "encoding": "avro"}, "/connector/value/registry"),
        ({**CHANGES, **REGISTRY, "encoding": "avro", "time_unit": "us"}, "/connector/value/time_unit"),
        ({**CHANGES, **REGISTRY, "encoding": "avro", "decimals": "text"}, "/connector/value/decimals"),
        ({**CHANGES, "has_key": True}, "/connector/value/has_key"),
        ({**CHANGES, "unwrapped": True}, "/connector/value/unwrapped"),
        ({"format": "json", "absent": ["at"]}, "/connector/value/absent"),
        ({"format": "json", "source_table": ["public.a"]}, "/connector/value/source_table"),
    ],
)
def test_what_does_not_fit_change_events_is_told(value: dict[str, Any], pointer: str) -> None:
    connector = {"type": "kafka", "bootstrap": "b:1", "topic": "t", "value": value}
    assert faults(changes(connector=connector)) == [(pointer, "invalid_value")]


def changes(**more: Any) -> TableDefinition:
    connector = {"type": "kafka", "bootstrap": "b:1", "topic": "t", "value": CHANGES}
    return TableDefinition.model_validate(
        {"key": ["v"], "columns": {"v": "bigint", "at": "bigint"}, "connector": connector, **more}
    )


def test_of_change_events_the_place_in_the_databases_log_decides() -> None:
    assert faults(changes()) == []
    assert relation_schema("t", changes()).conflict == "latest_position"
    assert relation_schema("t", changes(versioned={"history_retention": "1d"})).conflict == "latest_position"
    assert source_warnings(changes(event_time="at")) == []
    assert faults(changes(event_time="at", conflict="latest_event_time")) == [("/conflict", "unsupported_option")]


def test_change_events_are_of_tables_and_stand_in_values() -> None:
    assert faults(source(CHANGES)) == [("/connector", "unsupported_option")]
    with pytest.raises(ValidationError) as caught:
        source({"format": "json"}, CHANGES)
    (found,) = problems_of(caught.value, StreamDefinition)
    assert (found.pointer, found.code) == ("/connector/key/format", "invalid_value")
    connector = {"type": "kafka", "bootstrap": "b:1", "topic": "t", "value": CHANGES, "key": {"format": "kafka"}}
    assert faults(changes(connector=connector)) == [("/connector/key", "invalid_value")]


def ruled(**rules: list[str]) -> TableDefinition:
    return changes(connector={"type": "kafka", "bootstrap": "b:1", "topic": "t", "value": {**CHANGES, **rules}})


def test_which_changes_are_taken_may_be_said_later_of_a_table_that_is_being_read() -> None:
    plain, with_rules = changes(), ruled(absent=["at"], source_table=["public.a"])
    assert faults(with_rules) == []
    assert relation_schema("t", with_rules).change_rules == ChangeRules(("at",), ("public.a",))
    assert relation_schema("t", plain).change_rules is None
    assert feed_of("t", plain) == feed_of("t", with_rules)
    query = QueryDefinition.model_validate({"name": "q", "from": {"table": "t"}, "into": {"table": "out"}})
    before, after = (build_plan(query, {"t": source_entry("t", each)}) for each in (plain, with_rules))
    assert fits_stored_state(before, after)
    assert "absent" not in plain.model_dump(mode="json")["connector"]["value"]


def losing(**said: Any) -> SourceDefinition:
    connector = {"type": "kafka", "bootstrap": "b:1", "topic": "t", "value": {"format": "json"}, **said}
    return StreamDefinition.model_validate({"columns": {"v": "bigint", "at": "bigint"}, "connector": connector})


def test_what_happens_to_lost_records_may_be_said_later_of_a_relation_that_is_being_read() -> None:
    """It is the cure that a query names which retention has overtaken."""
    stops, skips = losing(), losing(on_lost="skip")
    assert feed_of("s", stops) == feed_of("s", skips)
    assert [relation_schema("s", each).lost_records for each in (stops, skips)] == ["stop", "skip"]
    query = QueryDefinition.model_validate({"name": "q", "from": {"stream": "s"}, "into": {"stream": "out"}})
    before, after = (build_plan(query, {"s": source_entry("s", each)}) for each in (stops, skips))
    assert fits_stored_state(before, after)


def test_a_column_that_changes_may_lack_is_one_of_the_tables() -> None:
    assert faults(ruled(absent=["at", "to"])) == [("/connector/value/absent/1", "unknown_column")]
    assert faults(ruled(absent=["v"])) == [("/connector/value/absent/0", "invalid_value")], "without its key a row is none"

"""How results' schemas are named in a registry, as far as definitions say it."""

from __future__ import annotations

from typing import Any

import pytest

from engine.definition.deliveries.delivery import goes_on
from engine.definition.deliveries.kafka import KafkaDelivery
from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition
from engine.errors import DefinitionInvalid
from engine.expressions.limits import STORED
from engine.plan.build import build_plan, read_query
from engine.plan.catalog import source_entry

PLAIN: dict[str, Any] = {"type": "kafka", "connection": "c", "topic": "t"}
CATALOG = {"s": source_entry("s", StreamDefinition.model_validate({"key": ["id"], "columns": {"id": "string", "v": "bigint"}}))}
REGISTERED = {"format": "avro", "registry": "r"}


def problems(**sides: Any) -> list[tuple[str, str]]:
    found = KafkaDelivery.model_validate({**PLAIN, **sides}).faults(("id", "v"), ("id",), is_table=False)
    return [(each.pointer.removeprefix("/into/connector"), each.code) for each in found]


@pytest.mark.parametrize("strategy", ["record_name", "topic_record_name"])
def test_a_strategy_by_record_needs_the_records_name(strategy: str) -> None:
    said = {**REGISTERED, "subject_strategy": strategy}
    assert problems(value=said) == [("/value/record", "invalid_value")]
    assert problems(value={**said, "record": "shop.Order"}) == []
    assert problems(value={**said, "schema": '{"type": "record", "name": "Order", "fields": []}'}) == []
    assert problems(key=said) == [("/key/record", "invalid_value")]


def test_a_records_name_means_nothing_without_a_registry_or_beside_a_schema() -> None:
    assert problems(value={"format": "avro", "record": "Order"}) == [("/value/record", "unsupported_option")]
    assert problems(value={"format": "string", "registry": "r", "subject_strategy": "record_name"}) == [
        ("/value/subject_strategy", "unsupported_option"),
        ("/value/record", "invalid_value"),
    ]
    assert problems(value={**REGISTERED, "schema": "{}", "record": "Order"}) == [("/value/record", "unsupported_option")]


SCHEMA = '{"type": "record", "name": "Order", "fields": []}'


@pytest.mark.parametrize(
    ("side", "pointer"),
    [
        *(({"format": "json", **said}, name) for said, name in (({"delimiter": "|"}, "delimiter"), ({"schema": "{}"}, "schema"))),
        ({"format": "json", "message": "M"}, "message"),
        ({"format": "json", "registry": "r", "schema": "{}"}, "schema"),
        ({**REGISTERED, "message": "M"}, "message"),
        ({**REGISTERED, "delimiter": "|"}, "delimiter"),
        ({"format": "protobuf", "registry": "r", "unwrapped": True}, "unwrapped"),
        ({"format": "protobuf", "registry": "r", "message": "M"}, "message"),
        ({"format": "protobuf", "registry": "r", "schema": "x"}, "schema"),
        ({"format": "delimited", "unwrapped": True}, "unwrapped"),
        ({"format": "delimited", "schema": "x"}, "schema"),
        ({"format": "delimited", "registry": "r"}, "registry"),
        ({"format": "kafka", "delimiter": "|"}, "delimiter"),
        ({"format": "string", "schema": "x"}, "schema"),
        ({"format": "avro"}, "registry"),
        ({"format": "protobuf"}, "registry"),
    ],
)
@pytest.mark.parametrize("name", ["key", "value"])
def test_what_means_nothing_or_cannot_be_read_is_refused_of_what_is_sent(name: str, side: dict[str, Any], pointer: str) -> None:
    asked = {"name": "q", "from": {"stream": "s"}, "into": {"stream": "out", "connector": {**PLAIN, name: side}}}
    with pytest.raises(DefinitionInvalid) as caught:
        read_query(asked, lambda: CATALOG)
    code = "invalid_value" if side in ({"format": "avro"}, {"format": "protobuf"}) else "unsupported_option"
    assert [(each.pointer, each.code) for each in caught.value.problems] == [(f"/into/connector/{name}/{pointer}", code)]
    # One of before goes on.
    assert build_plan(QueryDefinition.model_validate(asked, context=STORED), CATALOG)


@pytest.mark.parametrize(
    "side",
    [
        {"format": "json", "unwrapped": True},
        {"format": "json", "registry": "r", "record": "Order"},
        {**REGISTERED, "schema": SCHEMA},
        {"format": "avro", "schema": SCHEMA, "unwrapped": True},
        {"format": "protobuf", "registry": "r"},
        {"format": "delimited", "delimiter": "|"},
    ],
)
def test_what_means_something_is_taken(side: dict[str, Any]) -> None:
    assert list(KafkaDelivery.model_validate({**PLAIN, "key": side, "value": side}).faults_of_new()) == []


@pytest.mark.parametrize("name", ["", "1x", "a..b", ".a", "a.", "a b", "a\n", "ä"])
def test_a_name_that_no_record_can_have_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="record"):
        KafkaDelivery.model_validate({**PLAIN, "value": {**REGISTERED, "record": name}})


def test_a_delivery_from_before_there_were_strategies_goes_on() -> None:
    definition = KafkaDelivery.model_validate({**PLAIN, "value": REGISTERED})
    stored = definition.model_dump(mode="json", by_alias=True)
    assert {"subject_strategy", "record"}.isdisjoint(stored["value"])
    assert goes_on(stored, definition)
    other = KafkaDelivery.model_validate({**PLAIN, "value": {**REGISTERED, "subject_strategy": "record_name", "record": "Order"}})
    assert not goes_on(stored, other)

"""How results' schemas are named in a registry, as far as definitions say it."""

from __future__ import annotations

from typing import Any

import pytest

from engine.connectors.kafka.delivery_definition import KafkaDelivery
from engine.definition.delivery import goes_on

PLAIN: dict[str, Any] = {"type": "kafka", "connection": "c", "topic": "t"}
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

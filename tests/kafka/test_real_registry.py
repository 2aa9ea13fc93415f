"""A real registry between others' clients and ours: what Confluent's serialisers write we read, what we deliver their deserialisers read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import httpx
import polars as pl
import pytest

from engine.definition.deliveries.kafka import KafkaDelivery
from engine.deliveries.deliveries import DeliveryStopped, Result
from engine.deliveries.kafka.delivery import KafkaDeliverer, RepeatingKafkaDeliverer
from engine.errors import SourceUnavailable
from engine.expressions.types.types import Schema, parse_type
from engine.postgres.postgres import Connection
from engine.sources.feeds import Split
from engine.sources.kafka import sides
from tests.kafka.confluent_clients import Confluent, confluent
from tests.kafka.real_registry import RealRegistry
from tests.kafka.registries import Connected, connected
from tests.kafka.test_delivery import taken
from tests.kafka.test_formats import of_topic, sent
from tests.kafka.test_inferring import found
from tests.kafka.test_reading import NOW_MS, Source
from tests.kafka.topics import Cluster, Sent

FORMS = ("avro", "protobuf", "json")
COLUMNS = {"id": "bigint", "price": "struct<amount:double,currency:string>", "note": "string"}
EUROS = {"amount": 1.5, "currency": "€"}
UNKNOWN = b"\x00\x00\x0f\x42\x3f"
"""The header of a schema that no registry of the tests has."""

RESULT = {"item": "string", "price": "bigint", "cost": "decimal(10,2)", "at": "timestamp", "sizes": "array<bigint>"}


@pytest.fixture
def registry(connection: Connection, registry_server: RealRegistry) -> Iterator[Connected]:
    with connected(connection, registry_server.url) as found:
        yield found


@pytest.fixture
def clients(registry: Connected) -> Iterator[Confluent]:
    with confluent(registry.url) as found:
        yield found


def orders(connection: Connection, mock: Cluster, form: str, registry: Connected, **more: Any) -> Source:
    return Source(connection, mock, columns=COLUMNS, connector={"value": {"format": form, "registry": registry.name}}, **more)


@pytest.mark.parametrize("form", FORMS)
def test_what_confluents_serialisers_write_is_read_in_both_versions_of_a_schema_that_refers_to_another(
    form: str, connection: Connection, mock: Cluster, registry: Connected, clients: Confluent
) -> None:
    source = orders(connection, mock, form, registry)
    first = clients.orders(form, source.topic, 1, [{"id": 1, "price": EUROS}, {"id": 2}])
    second = clients.orders(form, source.topic, 2, [{"id": 3, "price": EUROS, "note": "ä"}])
    again = clients.orders(form, source.topic, 1, [{"id": 4, "price": EUROS}])
    rows = of_topic(mock, source, sent([*first, *second, *again, UNKNOWN + first[0][5:]]))
    assert [(row["id"], row["price"], row["note"]) for row in rows[:4]] == [
        (1, EUROS, None), (2, None, None), (3, EUROS, "ä"), (4, EUROS, None),
    ]  # fmt: skip
    # JSON is read without its schema.
    expected = [] if form == "json" else [(4, "unknown_schema")]
    assert [(row["offset"], row["reason"]) for row in source.rejects(Split(0, 0, 5))] == expected


@pytest.mark.parametrize("form", FORMS)
def test_columns_are_inferred_from_what_confluents_serialisers_register(
    form: str, connection: Connection, mock: Cluster, registry: Connected, clients: Confluent
) -> None:
    source = orders(connection, mock, form, registry)
    payloads = clients.orders(form, source.topic, 1, [{"id": 1, "price": EUROS}])
    payloads += clients.orders(form, source.topic, 2, [{"id": 2, "price": EUROS, "note": "x"}])
    mock.send(source.topic, [Sent(each) for each in payloads])
    assert found(source) == COLUMNS | ({"at": "timestamp"} if form == "protobuf" else {})


def delivered(
    mock: Cluster, store: Connected, form: str, topic: str, columns: dict[str, str], rows: list[dict[str, Any]], **value: Any
) -> list[tuple[bytes | None, bytes | None]]:
    """Deliver rows and return what the topic has."""
    side = {"format": form, "registry": store.name}
    definition = KafkaDelivery.model_validate(
        {
            "type": "kafka",
            "connection": "c",
            "topic": topic,
            "guarantee": "at_least_once",
            "key": side,
            "value": {**side, **value},
        }
    )
    types = Schema(tuple((name, parse_type(text)) for name, text in columns.items()))
    result = Result(UUID(int=1 << 100), "priced", types, ("item",), is_table=True)
    target: KafkaDeliverer = RepeatingKafkaDeliverer(definition, result, {"bootstrap.servers": mock.bootstrap}, store.store)
    numbers = range(len(rows))
    frame = pl.DataFrame(
        {"_offset": numbers, "_ts": [NOW_MS + number for number in numbers], "_op": [row.pop("_op", 0) for row in rows]},
        schema={"_offset": pl.Int64, "_ts": pl.Int64, "_op": pl.Int8},
    )
    try:
        target.position()
        target.deliver(frame.hstack(pl.DataFrame(rows, schema=types.polars())), 0, len(rows))
    finally:
        target.close()
    return [(each.key(), each.value()) for each in sorted(taken(mock, topic, len(rows)), key=lambda each: each.timestamp()[1])]


@pytest.mark.parametrize("form", FORMS)
def test_what_is_delivered_confluents_deserialisers_read_and_so_do_we(
    form: str, connection: Connection, mock: Cluster, registry: Connected, clients: Confluent
) -> None:
    topic = mock.topic()
    rows = [
        {"item": "a", "price": 7, "cost": "1.25", "at": NOW_MS * 1_000, "sizes": [1, 2]},
        {"item": "ä€", "price": None, "cost": None, "at": None, "sizes": []},
        {"item": "a", "price": None, "cost": None, "at": None, "sizes": None, "_op": 1},
    ]
    records = delivered(mock, registry, form, topic, RESULT, [_typed(row) for row in rows])
    assert {f"{topic}-key", f"{topic}-value"} <= {*clients.registry.get_subjects()}
    texts = {side: clients.registry.get_latest_version(f"{topic}-{side}").schema.schema_str or "" for side in ("key", "value")}

    def read(payload: bytes | None, side: str) -> dict[str, Any]:
        assert payload is not None
        value = clients.read(form, topic, payload, side, text=texts[side], message=f"{topic}_{side}")
        return value if isinstance(value, dict) else _fields(value)

    assert [read(key, "key") for key, _ in records] == [{"item": "a"}, {"item": "ä€"}, {"item": "a"}]
    first, second = (read(value, "value") for _, value in records[:2])
    assert (first["item"], first["price"], str(first["cost"]), first["sizes"]) == ("a", 7, "1.25", [1, 2])
    assert str(first["at"]).startswith("2023-11-14") or first["at"].seconds == NOW_MS // 1_000
    assert (second["item"], second["price"], second["cost"], second["at"], second["sizes"]) == ("ä€", None, None, None, [])
    assert records[2][1] is None
    side = {"format": form, "registry": registry.name}
    source = Source(connection, mock, key=["item"], columns=RESULT, connector={"topic": topic, "key": side, "value": side})
    back = [row for part in range(4) for row in source.rows(Split(part, 0, source.reader().ends()[part]))]
    assert sorted((row["_ts"], row["item"], row["price"], row["cost"] and str(row["cost"]), row["_op"]) for row in back) == [
        (NOW_MS, "a", 7, "1.25", 0), (NOW_MS + 1, "ä€", None, None, 0), (NOW_MS + 2, "a", None, None, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("strategy", "subject"), [("record_name", "{record}"), ("topic_record_name", "{topic}-{record}")])
def test_a_schema_stands_under_the_subject_that_its_strategy_names(
    form: str, strategy: str, subject: str, mock: Cluster, registry: Connected, clients: Confluent
) -> None:
    topic, record = mock.topic(), f"shop.prices.Priced{uuid4().hex[:8]}"
    columns = {"item": "string", "price": "bigint"}
    rows = [{"item": "a", "price": 7}]
    ((_, payload),) = delivered(mock, registry, form, topic, columns, rows, subject_strategy=strategy, record=record)
    subjects = {*clients.registry.get_subjects()}
    assert f"{topic}-key" in subjects, "a key's strategy is its own"
    assert f"{topic}-value" not in subjects
    text = clients.registry.get_latest_version(subject.format(topic=topic, record=record)).schema.schema_str or ""
    assert payload is not None
    value = clients.read(form, topic, payload, text=text, message=record)
    assert (value if isinstance(value, dict) else _fields(value)) == rows[0]


def test_a_given_schema_names_its_subject_itself(mock: Cluster, registry: Connected, clients: Confluent) -> None:
    topic, name = mock.topic(), f"Priced{uuid4().hex[:8]}"
    fields = [{"name": "price", "type": "long"}, {"name": "item", "type": "string"}]
    schema = {"type": "record", "name": name, "namespace": "shop", "fields": fields}
    given = {"subject_strategy": "record_name", "schema": json.dumps(schema)}
    delivered(mock, registry, "avro", topic, {"item": "string", "price": "bigint"}, [{"item": "a", "price": 7}], **given)
    assert f"shop.{name}" in clients.registry.get_subjects()


def _typed(row: dict[str, Any]) -> dict[str, Any]:
    """Make a value of what a literal cannot say."""
    times = pl.Series([row["at"]], dtype=pl.Int64).cast(pl.Datetime("us"))
    costs = pl.Series([row["cost"]], dtype=pl.String).str.to_decimal(scale=2)
    return {**row, "at": times[0], "cost": costs[0]}


def _fields(message: Any) -> dict[str, Any]:
    found = {}
    for each in message.DESCRIPTOR.fields:
        is_there = each.is_repeated or message.HasField(each.name)
        value = getattr(message, each.name) if is_there else None
        found[each.name] = list(value) if each.is_repeated else value
    return found


def test_results_that_a_subject_does_not_take_stop_their_delivery(
    mock: Cluster, registry: Connected, registry_server: RealRegistry
) -> None:
    topic = mock.topic()
    narrow, wide = {"item": "string", "price": "bigint"}, {"item": "string", "price": "string"}
    delivered(mock, registry, "avro", topic, narrow, [{"item": "a", "price": 1}])
    asked = httpx.put(f"{registry_server.url}/config/{topic}-value", json={"compatibility": "BACKWARD"}, trust_env=False)
    assert asked.status_code == 200, asked.text
    with pytest.raises(DeliveryStopped, match=r"(?i)incompatible"):
        delivered(mock, registry, "avro", topic, wide, [{"item": "a", "price": "x"}])


def test_a_registry_that_is_stopped_is_waited_for_and_has_all_when_it_is_started_again(
    connection: Connection, mock: Cluster, own_registry: RealRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sides, "QUESTION_S", 1.0)
    with connected(connection, own_registry.url) as registry, confluent(own_registry.url) as clients:
        source = orders(connection, mock, "avro", registry)
        old = clients.orders("avro", source.topic, 1, [{"id": 1, "price": EUROS}])
        new = clients.orders("avro", source.topic, 2, [{"id": 2, "note": "n"}])
        known, unknown = Split(0, 0, 1), Split(0, 1, 2)
        assert [row["id"] for row in of_topic(mock, source, sent([*old]))] == [1]
        mock.send(source.topic, sent([*new]))
        own_registry.stop()
        assert [row["id"] for row in source.rows(known)] == [1], "a schema that is known is not asked for again"
        with pytest.raises(SourceUnavailable, match="registry"):
            source.packets(unknown)
        own_registry.start()
        assert [(row["id"], row["note"]) for row in source.rows(unknown)] == [(2, "n")]
        own_registry.kill()
        own_registry.start()
        sides.forget(connection.info.dsn, registry.name)
        assert [(row["id"], row["price"]) for row in source.rows(known)] == [(1, EUROS)]

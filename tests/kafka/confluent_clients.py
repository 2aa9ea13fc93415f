"""What others write and read: Confluent's own serialisers and deserialisers for Python, with a registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pool, message_factory

from engine.formats.protobuf.compiling import compile_proto

MONEY_AVRO: Final = {"type": "record", "name": "Money", "namespace": "shop", "fields": [
    {"name": "amount", "type": "double"}, {"name": "currency", "type": "string"},
]}  # fmt: skip
MONEY_PROTO: Final = 'syntax = "proto3"; package shop; message Money { double amount = 1; string currency = 2; }'
MONEY_JSON: Final = {
    "$schema": "http://json-schema.org/draft-07/schema#", "$id": "money.json", "title": "Money", "type": "object",
    "properties": {"amount": {"type": "number"}, "currency": {"type": "string"}},
}  # fmt: skip
MONEY_FILE: Final = "shop/money.proto"
ADDED: Final = "note"
"""The field that the second version of a schema has."""


def order_avro(version: int) -> str:
    """Return a schema that refers to ``Money``, before or after a field was added."""
    fields: list[Any] = [{"name": "id", "type": "long"}, {"name": "price", "type": ["null", "shop.Money"], "default": None}]
    added = [{"name": ADDED, "type": ["null", "string"], "default": None}]
    # The new one is in front, so that nobody reads it by the old schema unnoticed.
    return json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": (added if version > 1 else []) + fields})


def order_proto(version: int) -> str:
    """Likewise; the message is the second of its file, and stands in another."""
    added = f"string {ADDED} = 4;" if version > 1 else ""
    return (
        f'syntax = "proto3"; package shop; import "{MONEY_FILE}"; import "google/protobuf/timestamp.proto"; message Other {{ string x = 1; }} '
        f"message Envelope {{ message Order {{ int64 id = 1; Money price = 2; google.protobuf.Timestamp at = 3; {added} }} }}"
    )


def order_json(version: int) -> str:
    """Likewise."""
    properties: dict[str, Any] = {"id": {"type": "integer"}, "price": {"$ref": "money.json"}}
    if version > 1:
        properties[ADDED] = {"type": "string"}
    return json.dumps(
        {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Order", "type": "object", "properties": properties}
    )


def message_class(name: str, text: str, *references: tuple[str, str]) -> Any:
    """Return the class that a ``.proto`` file's message has in a program."""
    pool = descriptor_pool.DescriptorPool()
    for file in compile_proto(text, references).file:
        if file.name == "main_schema.proto":
            file.name = "order.proto"
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


class Confluent:
    """A producer's and a consumer's clients.

    Args:
        registry: what both ask.
    """

    def __init__(self, registry: SchemaRegistryClient) -> None:
        self.registry = registry

    def orders(self, form: str, topic: str, version: int, rows: list[dict[str, Any]]) -> list[bytes]:
        """Serialise values with a version of a schema that refers to another one."""
        return {"avro": self._avro, "protobuf": self._protobuf, "json": self._json}[form](topic, version, rows)

    def read(self, form: str, topic: str, payload: bytes, side: str = "value", *, text: str = "", message: str = "") -> Any:
        """Deserialise as a consumer does."""
        context = SerializationContext(topic, MessageField.KEY if side == "key" else MessageField.VALUE)
        match form:
            case "avro":
                return AvroDeserializer(self.registry)(payload, context)
            case "json":
                return JSONDeserializer(None, schema_registry_client=self.registry)(payload, context)
        # Without the registry, which gives these clients no descriptors: Confluent's does, by a parameter that Apicurio's does not heed.
        return ProtobufDeserializer(message_class(message, text), {"use.deprecated.format": False})(payload, context)

    def _registered(self, subject: str, text: str, kind: str) -> SchemaReference:
        """Register what is referred to, and say how."""
        self.registry.register_schema(subject, Schema(text, kind))
        version = self.registry.get_latest_version(subject).version
        name = {"AVRO": "shop.Money", "JSON": "money.json"}[kind]
        return SchemaReference(name, subject, version)

    def _avro(self, topic: str, version: int, rows: list[dict[str, Any]]) -> list[bytes]:
        money = self._registered(f"{topic}-money", json.dumps(MONEY_AVRO), "AVRO")
        serialise = AvroSerializer(self.registry, Schema(order_avro(version), "AVRO", [money]))
        return [_bytes(serialise(row, _value_of(topic))) for row in rows]

    def _json(self, topic: str, version: int, rows: list[dict[str, Any]]) -> list[bytes]:
        money = self._registered(f"{topic}-money", json.dumps(MONEY_JSON), "JSON")
        serialise = JSONSerializer(Schema(order_json(version), "JSON", [money]), self.registry)
        return [_bytes(serialise(row, _value_of(topic))) for row in rows]

    def _protobuf(self, topic: str, version: int, rows: list[dict[str, Any]]) -> list[bytes]:
        order = message_class("shop.Envelope.Order", order_proto(version), (MONEY_FILE, MONEY_PROTO))
        serialise = ProtobufSerializer(order, self.registry, {"use.deprecated.format": False})
        return [_bytes(serialise(order(**row), _value_of(topic))) for row in rows]


@contextmanager
def confluent(url: str) -> Iterator[Confluent]:
    """Have clients of a registry for the length of the block."""
    with SchemaRegistryClient({"url": url}) as registry:
        yield Confluent(registry)


_value_of = partial(SerializationContext, field=MessageField.VALUE)


def _bytes(payload: bytes | None) -> bytes:
    assert payload is not None
    return payload

"""The meanings of Avro's numbers and bytes: its logical types, and the ``connect.name`` of Kafka Connect and Debezium."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from engine.formats.shapes import Meaning, SchemaNotRead, Shape

_LOGICAL: Final[dict[tuple[str, str], Meaning]] = {
    ("int", "date"): "date",
    ("int", "time-millis"): "time_ms",
    ("bigint", "time-micros"): "time_us",
    ("bigint", "timestamp-millis"): "timestamp_ms",
    ("bigint", "timestamp-micros"): "timestamp_us",
    ("bigint", "timestamp-nanos"): "timestamp_ns",
    ("bigint", "local-timestamp-millis"): "timestamp_ms",
    ("bigint", "local-timestamp-micros"): "timestamp_us",
    ("bigint", "local-timestamp-nanos"): "timestamp_ns",
    ("bytes", "decimal"): "decimal",
    ("fixed", "decimal"): "decimal",
    ("fixed", "uuid"): "uuid",
}
"""Other logical types are ignored, as the specification asks: the value has its plain type. A local timestamp is read as UTC."""

CONNECT_NAMES: Final[dict[str, Meaning]] = {
    "org.apache.kafka.connect.data.Decimal": "decimal",
    "org.apache.kafka.connect.data.Date": "date",
    "org.apache.kafka.connect.data.Time": "time_ms",
    "org.apache.kafka.connect.data.Timestamp": "timestamp_ms",
    "io.debezium.time.Date": "date",
    "io.debezium.time.Time": "time_ms",
    "io.debezium.time.MicroTime": "time_us",
    "io.debezium.time.NanoTime": "time_ns",
    "io.debezium.time.Timestamp": "timestamp_ms",
    "io.debezium.time.MicroTimestamp": "timestamp_us",
    "io.debezium.time.NanoTimestamp": "timestamp_ns",
    "io.debezium.time.ZonedTimestamp": "instant_text",
}
"""Names of Kafka Connect's and Debezium's schemas, in Avro and in JSON envelopes alike."""


def meaning_of(shape: Shape, schema: dict[str, Any]) -> Shape:
    """Return the scalar with the meaning from its schema."""
    logical, named = schema.get("logicalType"), schema.get("connect.name")
    meaning = _LOGICAL.get((shape.kind, logical)) if isinstance(logical, str) else None
    if meaning is None and isinstance(named, str):
        meaning = CONNECT_NAMES.get(named)
    if meaning is None:
        return shape
    if meaning == "decimal":
        precision, scale = _digits(schema)
        return replace(shape, meaning=meaning, precision=precision, scale=scale)
    if meaning == "uuid" and shape.size != 16:
        return shape
    return replace(shape, meaning=meaning)


def _digits(schema: dict[str, Any]) -> tuple[int, int]:
    """Return precision (0: unknown) and scale."""
    parameters = schema.get("connect.parameters")
    of_connect = parameters if isinstance(parameters, dict) else {}
    try:
        precision = int(schema.get("precision") or of_connect.get("connect.decimal.precision") or 0)
        scale = int(schema.get("scale") or of_connect.get("scale") or 0)
    except (TypeError, ValueError):
        raise SchemaNotRead("precision or scale of a decimal is no number") from None
    if precision > 38 or not 0 <= scale <= (precision or 38):
        raise SchemaNotRead(f"decimal({precision},{scale}) is not read: precision is at most 38, scale 0 to the precision")
    return precision, scale

"""How change events are read: the settings, and the fields of a table's rows, by a schema in the events, else by the rows' values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from engine.definition.relations import EventTimeUnit
from engine.expressions.types.types import BIGINT, STRING, ColumnType, Schema
from engine.formats.avro.meanings import CONNECT_NAMES
from engine.formats.json.json_shapes import fields_of
from engine.formats.port import FormatInvalid
from engine.formats.shapes import SchemaNotRead, Shape
from engine.records.inferred import Fields

Decimals = Literal["bytes", "text"]


@dataclass(frozen=True, slots=True)
class DebeziumSettings:
    """How change events are read.

    Attributes:
        columns: of the relation.
        key: its key columns: the only ones in a delete.
        encoding: of the envelope.
        has_registry: events begin with the number of a registered schema (Avro always).
        time_unit: the unit of numbers in columns of time and timestamp, if an event has no schema: ``time.precision.mode``
            ``connect`` is ``ms``; for ``adaptive`` it depends on the database's column.
        decimals: the meaning of texts in decimal columns without a schema: base64 of bytes (``decimal.handling.mode`` ``precise``, with the
            scale of the column), or digits (``string``). None: such an event is refused, because "1234" could be either.
    """

    columns: Schema
    key: tuple[str, ...]
    encoding: Literal["json", "avro"] = "json"
    has_registry: bool = False
    time_unit: EventTimeUnit = "ms"
    decimals: Decimals | None = None

    def __post_init__(self) -> None:
        if self.encoding == "avro" and not self.has_registry:
            raise FormatInvalid("debezium events in avro name their schemas: give `registry`")
        if self.time_unit == "s":
            raise FormatInvalid("Debezium counts no seconds: a time unit is ms, us or ns")

    def envelope(self) -> Schema:
        """Return the columns of the envelope that are read."""
        row = ColumnType("struct", fields=self.columns.items())
        return Schema((("before", row), ("after", row), ("op", STRING), ("ts_ms", BIGINT), ("source", SOURCE)))


SOURCE: Final = ColumnType(
    "struct",
    fields=(
        ("connector", STRING), ("ts_ms", BIGINT), ("ts_us", BIGINT), ("lsn", BIGINT), ("file", STRING), ("pos", BIGINT),
        ("row", BIGINT), ("commit_lsn", STRING), ("change_lsn", STRING), ("event_serial_no", BIGINT), ("scn", STRING),
        ("name", STRING), ("db", STRING), ("schema", STRING), ("table", STRING),
    ),
)  # fmt: skip
"""The fields of a change's source: its time and its position in the database's log."""


_KINDS: Final[Mapping[str, str]] = {
    "int8": "int", "int16": "int", "int32": "int", "int64": "bigint", "float": "double", "float32": "double", "double": "double",
    "float64": "double", "boolean": "boolean", "string": "string", "bytes": "bytes",
}  # fmt: skip
"""Kafka Connect's names of types."""


def row_of_envelope(envelope: Shape) -> Fields:
    """Return the fields of the row in an envelope's schema.

    Raises:
        SchemaNotRead: it is no schema of change events.
    """
    row = dict(envelope.fields).get("after")
    if row is None or row.kind != "struct":
        raise SchemaNotRead("it is no schema of change events: it has no record `after`")
    return [(name, inner.column_type()) for name, inner in row.fields]


def row_of_events(events: Sequence[Mapping[str, Any]]) -> Fields:
    """Return the fields of the rows of JSON events, newest last: by the newest schema in them, else by their values.

    Without a schema the newest row decides: fields that only earlier rows have were dropped or renamed.

    Raises:
        Unlike: rows have different types for a field.
    """
    for event in reversed(events):
        for side in schema_fields(event.get("schema")):
            if side.get("field") == "after" and isinstance(event.get("payload"), dict):
                return [(str(field.get("field")), _declared(field)) for field in schema_fields(side)]
    bodies = [event["payload"] if isinstance(event.get("payload"), dict) else event for event in events]
    fields = fields_of(row for body in bodies for row in (body.get("before"), body.get("after")) if isinstance(row, dict))
    newest = next((body["after"] for body in reversed(bodies) if isinstance(body.get("after"), dict)), None)
    return [field for field in fields if newest is None or field[0] in newest]


def key_of_event(key: bytes) -> tuple[str, ...]:
    """Return the names in a record's key; none if it is no JSON object."""
    try:
        value = json.loads(key)
    except (ValueError, RecursionError):
        return ()
    payload = value.get("payload", value) if isinstance(value, dict) else None
    return tuple(payload) if isinstance(payload, dict) else ()


def _declared(schema: Mapping[str, Any]) -> ColumnType | None:
    """Return the type of a Kafka Connect field; None: no column holds it."""
    kind = schema.get("type")
    meaning = CONNECT_NAMES.get(str(schema.get("name")))
    if kind == "struct":
        fields = [(str(field.get("field")), _declared(field)) for field in schema_fields(schema)]
        held = tuple((name, declared) for name, declared in fields if declared is not None)
        return ColumnType("struct", fields=held) if held else None
    if kind == "array":
        items = schema.get("items")
        element = _declared(items) if isinstance(items, dict) else None
        return None if element is None else ColumnType("array", element=element)
    if not isinstance(kind, str) or kind not in _KINDS:
        return None
    if meaning != "decimal":
        return Shape(_KINDS[kind], meaning or "plain").column_type()  # type: ignore[arg-type]  # values of that table are kinds
    parameters = schema.get("parameters")
    said = parameters if isinstance(parameters, dict) else {}
    precision, scale = (_number(said.get(name)) for name in ("connect.decimal.precision", "scale"))
    return Shape("bytes", "decimal", precision=precision, scale=scale).column_type()


def _number(said: Any) -> int:
    """Return a number of digits, which Kafka Connect writes as a text; 0 if no decimal has this many."""
    text = str(said)
    return int(text) if text.isdecimal() and len(text) <= 2 and int(text) <= 38 else 0


def schema_fields(schema: Any) -> list[dict[str, Any]]:
    """Return the fields of a struct in a Kafka Connect schema; none if it is no such schema."""
    fields = schema.get("fields") if isinstance(schema, dict) else None
    return [field for field in fields if isinstance(field, dict)] if isinstance(fields, list) else []

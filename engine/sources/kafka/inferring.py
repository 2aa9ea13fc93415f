"""The columns of a topic's records: from a schema of the registry or the definition, else from the newest records."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from engine.definition.sources.kafka import KafkaPlace, Side
from engine.errors import DefinitionInvalid, Problem
from engine.expressions.types.types import BIGINT, BYTES, INT, STRING, TIMESTAMP, ColumnType
from engine.formats.avro.reader import schema_of as avro_schema_of
from engine.formats.avro.schema import parse_schema
from engine.formats.debezium.fields import key_of_event, row_of_envelope, row_of_events
from engine.formats.json.json_schema_columns import fields_of_schema
from engine.formats.json.json_shapes import Unlike, fields_of
from engine.formats.port import FormatInvalid, RegisteredSchema, SchemaKind, SchemaUnknown, SideName
from engine.formats.protobuf.compiling import compile_proto
from engine.formats.protobuf.reader import message_path
from engine.formats.protobuf.reader import schema_of as protobuf_schema_of
from engine.formats.protobuf.schema import message_of, parse_message
from engine.formats.registry.client import Registry
from engine.formats.registry.wire import HEADER
from engine.formats.shapes import SchemaNotRead, Shape
from engine.frames.byte_texts import texts_of
from engine.records.inferred import Fields, Inferred, nothing_found, proposed
from engine.sources.kafka.brokers.broker_errors import OffsetOutOfRange
from engine.sources.kafka.brokers.client import asking, consumer_loop
from engine.sources.kafka.brokers.consumer_loop import ConsumerLoop
from engine.sources.kafka.brokers.fetching.port import Fetched, RecordFields
from engine.sources.kafka.sides import store_of

SEEN: Final = 200
"""Newest records that are read if no schema describes them."""

_SHOWN_HEAD: Final = 64
_FACTS: Final[Mapping[str, ColumnType]] = {
    "timestamp": TIMESTAMP,
    "partition": INT,
    "offset": BIGINT,
    "headers": ColumnType("map", key=STRING, value=BYTES),
}


@dataclass(frozen=True, slots=True)
class _SideFields:
    """The content of one side.

    Attributes:
        fields: by name; None: one value without a name.
        single: the type of that value.
    """

    fields: Fields | None
    single: ColumnType | None = None

    @classmethod
    def of(cls, shape: Shape) -> _SideFields:
        if shape.kind != "struct" or shape.meaning != "plain":
            return cls(None, shape.column_type())
        return cls([(name, inner.column_type()) for name, inner in shape.fields])


@dataclass(frozen=True, slots=True)
class _SideRequest:
    """A side to examine.

    Attributes:
        payloads: of the newest records, without nulls.
    """

    dsn: str
    topic: str
    name: SideName
    side: Side
    payloads: Sequence[bytes]


def infer(dsn: str, place: KafkaPlace, key: Sequence[str]) -> Inferred:
    """Propose columns, those of the key first.

    Args:
        dsn: of the database with the connections.
        place: the topic and its formats.
        key: names of the key's columns in the definition; empty: they may be proposed.

    Raises:
        DefinitionInvalid: nothing shows the columns, or the name of a value without one.
        FormatInvalid: the settings do not fit together.
        TopicMissing, TopicDenied, RegistryUnavailable, RegistryRefused, SourceUnavailable: no system can be asked.
    """
    newest = newest_records(dsn, place, SEEN)
    keys, values = (tuple(side.drop_nulls().to_list()) for side in (newest.keys, newest.values))
    facts = [(name, _FACTS.get(what, STRING)) for name, what in place.record_columns]
    if place.value is not None and place.holds_changes:
        row, own = _changes(_SideRequest(dsn, place.topic, "value", place.value, values), keys, key)
        return proposed([*row, *facts], own)
    of_key = None if place.key is None else _side(_SideRequest(dsn, place.topic, "key", place.key, keys))
    of_value = None if place.value is None else _side(_SideRequest(dsn, place.topic, "value", place.value, values))
    if of_value is not None and of_value.fields is None:
        raise nothing_found("values hold one thing without a name")
    fields, own = _of_key(of_key, key)
    known = {name for name, _ in fields}
    further = [] if of_value is None or of_value.fields is None else of_value.fields
    return proposed([*fields, *(each for each in further if each[0] not in known), *facts], own)


def _of_key(found: _SideFields | None, key: Sequence[str]) -> tuple[list[tuple[str, ColumnType | None]], tuple[str, ...]]:
    """Return the columns in keys, and the relation's key."""
    if found is None:
        return [], tuple(key)
    if found.fields is not None:
        names = tuple(key) or tuple(name for name, _ in found.fields)
        return [each for each in found.fields if each[0] in names], names
    if len(key) != 1:
        detail = 'keys hold one value without a name: name its column here, as in ["id"]'
        raise DefinitionInvalid([Problem("/key", "columns_not_inferred", detail)])
    return [(key[0], found.single)], tuple(key)


def _side(asked: _SideRequest) -> _SideFields:
    found = _BY_FORMAT[asked.side.format](asked)
    if asked.side.is_unwrapped and found.fields is not None and asked.side.format != "avro":
        raise FormatInvalid("it is said to be `unwrapped`, and holds an object; leave that out")
    return found


def _avro(asked: _SideRequest) -> _SideFields:
    if asked.side.schema is not None:
        return _SideFields.of(_read(lambda: parse_schema(asked.side.schema or "").shape))
    registered = _registered(asked, "AVRO")
    return _SideFields.of(_read(lambda: avro_schema_of(registered).shape))


def _protobuf(asked: _SideRequest) -> _SideFields:
    text = asked.side.schema
    if text is not None:
        message = asked.side.message
        return _SideFields.of(_read(lambda: parse_message(message_of(compile_proto(text), message)).shape))
    registered, path = _registered(asked, "PROTOBUF"), (0,)
    if asked.payloads:
        head = asked.payloads[-1][HEADER : HEADER + _SHOWN_HEAD]
        path = _read(lambda: message_path(head)[0])
    return _SideFields.of(_read(lambda: protobuf_schema_of(registered, path, None).shape))


def _json(asked: _SideRequest) -> _SideFields:
    if not asked.side.is_unwrapped and asked.side.registry is not None and (said := _json_schema(asked)) is not None:
        return _SideFields(said)
    values = _values(asked)
    if not asked.side.is_unwrapped:
        objects = [value for value in values if isinstance(value, dict)]
        if not objects:
            raise nothing_found(f"none of the newest {asked.name}s is a JSON object")
        return _SideFields(_fields_of(lambda: fields_of(objects)))
    return _SideFields(
        None, next((declared for _, declared in _fields_of(lambda: fields_of({"it": each} for each in values))), None)
    )


def _json_schema(asked: _SideRequest) -> Fields | None:
    """Return the properties in the registry's schema; one without a type gets the type of the newest records. None: the schema has none."""
    try:
        registered = _registered_schema(asked, "JSON")
    except SchemaUnknown:
        return None  # JSON is read without its schema
    if registered is None or registered.kind != "JSON":
        return None
    said: Fields | None = _read(lambda: fields_of_schema(registered.text, registered.references))
    if said is None or not any(declared is None for _, declared in said) or not asked.payloads:
        return said
    objects = [value for value in _values(asked) if isinstance(value, dict)]
    names = {name for name, declared in said if declared is None}
    seen = dict(_fields_of(lambda: fields_of({name: each[name] for name in each.keys() & names} for each in objects)))
    return [(name, declared or seen.get(name)) for name, declared in said]


def _values(asked: _SideRequest) -> list[Any]:
    """Return the newest payloads that are JSON."""
    if not asked.payloads:
        raise nothing_found(f"the topic holds no {asked.name} that could be looked at")
    skipped, found = HEADER if asked.side.registry is not None else 0, []
    for payload in asked.payloads:
        try:
            found.append(json.loads(payload[skipped:]))
        except (ValueError, RecursionError):
            continue
    if not found:
        raise nothing_found(f"none of the newest {asked.name}s is JSON")
    return found


def _kafka(asked: _SideRequest) -> _SideFields:
    """Return the type of a bare value: text if all are, else a number by its size, else bytes."""
    if not asked.payloads:
        raise nothing_found(f"the topic holds no {asked.name} that could be looked at")
    texts = texts_of(pl.Series(asked.payloads, dtype=pl.Binary))
    if not texts.null_count() and all(text.isprintable() for text in texts):
        return _SideFields(None, STRING)
    sizes = {len(payload) for payload in asked.payloads}
    return _SideFields(None, {4: INT, 8: BIGINT}.get(sizes.pop(), BYTES) if len(sizes) == 1 else BYTES)


def _delimited(asked: _SideRequest) -> _SideFields:
    raise nothing_found(f"{asked.name}s are delimited, and so have no names")


_BY_FORMAT: Final[Mapping[str, Callable[[_SideRequest], _SideFields]]] = {
    "json": _json,
    "json_lenient": _json,
    "avro": _avro,
    "protobuf": _protobuf,
    "delimited": _delimited,
    "string": lambda _: _SideFields(None, STRING),
    "bytes": lambda _: _SideFields(None, BYTES),
    "kafka": _kafka,
}


def _changes(asked: _SideRequest, keys: Sequence[bytes], key: Sequence[str]) -> tuple[Fields, tuple[str, ...]]:
    """Return the fields of the rows in change events, and the table's key: from the definition, else from the records' keys."""
    if asked.side.encoding == "avro":
        registered = _registered(asked, "AVRO")
        row = _read(lambda: row_of_envelope(avro_schema_of(registered).shape))
        if key or not keys:
            return row, tuple(key)
        own = _avro(_SideRequest(asked.dsn, asked.topic, "key", asked.side, keys))
        return row, tuple(name for name, _ in own.fields or ())
    events = [value for value in _values(asked) if isinstance(value, dict)]
    row = _fields_of(lambda: row_of_events(events))
    if not row:
        raise nothing_found("none of the newest records is a change event with a row")
    return row, tuple(key) or key_of_event(keys[-1][HEADER if asked.side.registry is not None else 0 :] if keys else b"")


def _registered(asked: _SideRequest, kind: SchemaKind) -> RegisteredSchema:
    """Return the schema of a side; see ``_registered_schema``."""
    try:
        found = _registered_schema(asked, kind)
    except SchemaUnknown as error:
        raise nothing_found(str(error)) from error
    if found is None:
        raise nothing_found(
            f"the registry has no subject '{asked.topic}-{asked.name}' of {kind.lower()}, and no {asked.name} of the topic names a schema"
        )
    return found


def _registered_schema(asked: _SideRequest, kind: SchemaKind) -> RegisteredSchema | None:
    """Return the newest schema of the topic's subject, as Confluent's clients name it, else that of the newest record; None: there is none.

    Raises:
        SchemaUnknown: the registry lacks the schema that the newest record names.
    """
    store = store_of(asked.dsn, asked.side.registry)
    latest = store.latest(f"{asked.topic}-{asked.name}") if isinstance(store, Registry) else None
    if latest is not None and latest.kind == kind:
        return latest
    framed = [payload for payload in asked.payloads if len(payload) >= HEADER and payload[0] == 0]
    return store.by_number(int.from_bytes(framed[-1][1:HEADER], "big")) if framed else None


def _read(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except (SchemaNotRead, ValueError) as error:
        raise nothing_found(f"the schema cannot be read: {error}") from error


def _fields_of(work: Callable[[], Fields]) -> Fields:
    try:
        return work()
    except Unlike as error:
        raise nothing_found(f"the newest records do not agree: {error}") from error


LOOKED_AT: Final = 100
"""Offsets to go back for each requested record: compaction and transactions leave gaps."""

ALL: Final = RecordFields(has_headers=True)


def newest_records(dsn: str, place: KafkaPlace, count: int, most_s: float = 10.0) -> Fetched:
    """Return up to ``count`` of the newest records of all partitions, those of each in their order.

    Args:
        dsn: of the database with the connections.
        place: the topic (``KafkaConnector.location(…).place``).
        count: how many.
        most_s: after this time the records found so far are returned.

    Raises:
        TopicMissing, TopicDenied: the broker has no such topic, or forbids reading it.
        SourceUnavailable: the broker cannot be asked now.
    """
    end_at = time.monotonic() + most_s
    with asking(dsn, place) as client:
        partitions = client.partitions()
        lows, ends = client.lows(partitions), client.ends(partitions)
    holding = [each for each in partitions if ends[each] > lows[each]]
    if not count or not holding:
        return Fetched.nothing(ALL)
    found = []
    for partition in holding:
        with consumer_loop(dsn, place, ALL, partition, lows[partition]) as taker:
            found.append(_newest_of(taker, partition, lows[partition], ends[partition], -(-count // len(holding)), end_at))
    newest = Fetched.joined(found)
    return newest.part(max(0, len(newest) - count), len(newest))


def _newest_of(taker: ConsumerLoop, partition: int, low: int, end: int, wanted: int, end_at: float) -> Fetched:
    back = wanted
    while time.monotonic() < end_at:
        start = position = max(low, end - back)
        found = [Fetched.nothing(ALL)]
        while position < end and time.monotonic() < end_at:
            try:
                taken = taker.take(partition, position, end, end - position)
            except OffsetOutOfRange:
                break  # retention was faster
            found.append(taken.records)
            position = taken.position
        records = Fetched.joined(found)
        if len(records) >= wanted or start == low or back >= wanted * LOOKED_AT:
            return records.part(max(0, len(records) - wanted), len(records))
        back *= 10
    return Fetched.nothing(ALL)

"""What a definition says of a topic of Kafka. Pure: definitions are made of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from engine.definition.sources.connector import (
    ChangeRules,
    Clause,
    ConnectorModel,
    Location,
    LostRecords,
    RecordLocation,
    TopicWords,
    Traits,
)
from engine.definition.sources.side_options import CHANGES, READ, ignored, ignored_fault, schema_faults
from engine.errors import Problem
from engine.expressions.limits import Expression
from engine.expressions.model import NAME_PATTERN, Model, is_absent

FormatName = Literal["json", "json_lenient", "avro", "protobuf", "delimited", "string", "bytes", "kafka"]
ValueFormatName = Literal["json", "json_lenient", "avro", "protobuf", "delimited", "string", "bytes", "kafka", "debezium"]
_MOST_NAMES: Final = 1_000
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SERVER: Final = re.compile(r"([A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")
_FACTS: Final = ("timestamp", "partition", "offset", "headers")
HEADER: Final = "header:"
"""Before the name of one header in ``record_columns``."""

_LATER_FIELDS: Final = ("encoding", "decimals")
"""Of ``Side``: where they say nothing, names of feeds are what they were before."""

_FORMATS: Final[Mapping[str, dict[str, Any]]] = {
    "JSON": {"format": "json_lenient"},
    "DELIMITED": {"format": "delimited"},
    "KAFKA": {"format": "kafka"},
}
"""ksqlDB's formats as it reads them. Those of a registry name which one, so they are said in ``KEY_READER`` and ``VALUE_READER``."""


@dataclass(frozen=True, slots=True)
class Side:
    """How a topic's keys, or its values, are read. See ``SideFormat`` and ``ValueFormat``."""

    format: str
    registry: str | None
    schema: str | None
    message: str
    is_unwrapped: bool
    delimiter: str
    time_unit: str
    has_key: bool
    encoding: str | None = None
    decimals: str | None = None


def _said(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in pairs if value is not None or name not in _LATER_FIELDS}


@dataclass(frozen=True, slots=True)
class KafkaPlace(RecordLocation):
    """A topic, and how it is read. What a reader connects with is not in it.

    Attributes:
        connection: name of a stored connection; None: ``bootstrap`` is there instead.
        key: None: keys are not looked at.
        value: None: values are not looked at.
        record_columns: column and what of the record it holds.
    """

    topic: str
    connection: str | None
    bootstrap: str | None
    key: Side | None
    value: Side | None
    record_columns: tuple[tuple[str, str], ...]

    @property
    def topic_name(self) -> str:
        return self.topic

    @property
    def holds_changes(self) -> bool:
        """Whether its records are changes of a database's table."""
        return self.value is not None and self.value.format == CHANGES

    def state_part(self) -> Mapping[str, object]:
        """See ``RecordLocation``: the feed's name has a digest of all of it."""
        return {}


def _of_keys(name: Any) -> Any:
    if name == CHANGES:
        detail = "change events stand in the values, and have their rows' keys: leave `key` out, and say it of `value`"
        raise PydanticCustomError("invalid_value", detail)
    return name


class SideFormat(Model):
    """How keys, or values, are written."""

    format: Annotated[FormatName, BeforeValidator(_of_keys)] = Field(
        description="`json` is strict, `json_lenient` as ksqlDB; `kafka` is what Kafka's own serialisers write of one number, text or bytes."
    )
    registry: str | None = Field(
        default=None,
        pattern=NAME_PATTERN,
        description="Name of a connection of type registry: payloads begin with the number of a schema that it has (json, avro, protobuf).",
    )
    schema_: str | None = Field(
        default=None,
        alias="schema",
        max_length=1 << 20,
        description="An Avro schema or a `.proto` file, where no registry has it.",
    )
    message: str = Field(default="", max_length=1_000, description="Of protobuf: which message of the file; empty: the first.")
    unwrapped: bool = Field(
        default=False, description="The one column stands alone, without an object or a record around it (json, avro)."
    )
    delimiter: str = Field(default=",", min_length=1, max_length=1, description="Of delimited: what stands between columns.")
    time_unit: Literal["s", "ms", "us", "ns"] = Field(
        default="ms",
        description="What plain numbers in columns of type timestamp count since 1970, where no schema says it (json; debezium, of times too). "
        "Of json with another one than ms, timestamps are numbers in each record.",
    )

    def side(self, *, has_key: bool) -> Side:
        """Return it as readers take it."""
        return Side(
            self.format, self.registry, self.schema_, self.message, self.unwrapped, self.delimiter, self.time_unit, has_key
        )  # fmt: skip

    def ignored(self) -> Iterator[str]:
        """Yield the options that are said and mean nothing to the format."""
        yield from ignored(self, self.format, READ)


class ValueFormat(SideFormat):
    """How values are written."""

    format: ValueFormatName = Field(  # type: ignore[assignment]  # the one format that keys have not
        description="As of keys; and `debezium`, for tables: changes of a database's table, as Debezium captures them. Of a key the change "
        "that stands last in the database's log counts."
    )
    encoding: Literal["json", "avro"] | None = Field(
        default=None,
        exclude_if=is_absent,
        description="Of debezium: how events are written; absent: json. avro needs `registry`.",
    )
    decimals: Literal["bytes", "text"] | None = Field(
        default=None,
        exclude_if=is_absent,
        description="Of debezium in json: what texts in decimal columns are where an event brings no schema: `bytes` "
        "(decimal.handling.mode=precise) or `text` (string). Without, such events are refused.",
    )
    absent: Annotated[tuple[str, ...], Field(min_length=1, max_length=_MOST_NAMES)] | None = Field(
        default=None,
        exclude_if=is_absent,
        description="Of debezium: declared columns that the database's table need not have: they are null where an event has none of that "
        "name, as events from before a column was added. Without it such events are refused (`column_missing`).",
        examples=[["discount"]],
    )
    source_table: Annotated[tuple[str, ...], Field(min_length=1, max_length=_MOST_NAMES)] | None = Field(
        default=None,
        exclude_if=is_absent,
        description="Of debezium: the database's tables whose rows are taken, with their schemas; rows of others are refused "
        "(`other_table`). null: all rows of the topic, which has one table unless Debezium's events are routed.",
        examples=[["public.orders"]],
    )
    has_key: bool = Field(
        default=False,
        description="Key columns stand in the value as well; where `key` is read they must agree. Without `key` they always do.",
    )

    def side(self, *, has_key: bool) -> Side:
        encoding = (self.encoding or "json") if self.format == CHANGES else None
        return replace(SideFormat.side(self, has_key=has_key), encoding=encoding, decimals=self.decimals)

    def ignored(self) -> Iterator[str]:
        yield from ignored(self, self.format, READ)
        if self.encoding == "avro":
            if self.time_unit != "ms":
                yield "time_unit"
            if self.decimals is not None:
                yield "decimals"


class KafkaConnector(ConnectorModel):
    """A topic of Kafka, read with `read_committed`. Relations that say the same of a topic share its order.

    Without `event_time` a record's event time is its timestamp (CreateTime or LogAppendTime, as the topic is set up), and of a change that
    Debezium captured when it happened in the database. A record without a value is a delete in a table; behind Debezium's own delete it says
    nothing.
    """

    traits: ClassVar = Traits(has_heads=True, holds="records of a topic", appended_by="produce to its topic")
    clauses: ClassVar = (
        Clause("KAFKA_TOPIC", "topic", is_of_topics=True),
        Clause("CONNECTION", "connection", is_choice=True),
        Clause("BOOTSTRAP", "bootstrap", is_choice=True),
        Clause("KEY_READER", "key", "json"),
        Clause("VALUE_READER", "value", "json"),
        Clause("RECORD_COLUMNS", "record_columns", "json"),
        Clause("ON_LOST", "on_lost", "word", ("STOP", "SKIP"), default="STOP"),
    )

    type: Literal["kafka"] = Field(description="A topic of Kafka.")
    topic: str = Field(min_length=1, max_length=249, description="Its name.", examples=["orders"])
    connection: str | None = Field(
        default=None, pattern=NAME_PATTERN, description="Name of a connection of type kafka (`PUT /v1/connections/{name}`)."
    )
    bootstrap: str | None = Field(
        default=None,
        max_length=1_000,
        description="Brokers without TLS and authentication as host:port, in place of a connection.",
        examples=["broker-1:9092,broker-2:9092"],
    )
    key: SideFormat | None = Field(
        default=None,
        description="How keys are written: they hold the columns of the relation's `key`. null: keys are not looked at.",
    )
    value: ValueFormat | None = Field(
        default=None, description="How values are written: they hold the other columns. null: values are not looked at."
    )
    record_columns: Annotated[dict[str, str], Field(max_length=100)] = Field(
        default_factory=dict,
        description="Column → what of the record it holds: `timestamp`, `partition`, `offset`, `headers` (map<string,bytes>, the last of each "
        "name), or `header:NAME` (string or bytes, the last of that name).",
        examples=[{"trace": "header:traceparent"}],
    )
    on_lost: LostRecords = Field(
        default="stop",
        description="Where retention removed records of a partition that a query has begun to read: it stops with the reason "
        "(`offset_out_of_range`), or goes on with what is there and counts them (`records_lost`). It may change while queries read the "
        "source. A query that reads several sources of one topic's order goes on only where all of them say `skip`.",
    )
    where: Expression | None = Field(default=None, description="Which records are this relation's.")

    def location(self, relation: str) -> Location:  # noqa: ARG002 - who names the topic reads it
        key = None if self.key is None else self.key.side(has_key=True)
        value = None if self.value is None else self.value.side(has_key=self.value.has_key or key is None)
        place = KafkaPlace(self.topic, self.connection, self.bootstrap, key, value, tuple(self.record_columns.items()))
        parts = asdict(place, dict_factory=_said)
        said = sha256(repr(sorted(parts.items(), key=str)).encode()).hexdigest()[:12]
        identity = f"kafka:{self.connection or self.bootstrap}/{self.topic}/{said}"
        return Location(identity, identity, place)

    @property
    def has_positions(self) -> bool:
        return self.value is not None and self.value.format == CHANGES

    @property
    def change_rules(self) -> ChangeRules | None:
        """See ``ConnectorModel``. It is no part of the place: relations that differ in it share the topic's order."""
        if self.value is None or (self.value.absent is None and self.value.source_table is None):
            return None
        return ChangeRules(self.value.absent or (), self.value.source_table or ())

    @property
    def lost_records(self) -> LostRecords | None:
        """See ``ConnectorModel``. It is no part of the place, like ``change_rules``."""
        return self.on_lost

    def columns_named(self) -> Iterator[tuple[str, str]]:
        for place, name in enumerate((self.value and self.value.absent) or ()):
            yield f"/connector/value/absent/{place}", name

    def named(self) -> Iterator[tuple[str, str | None]]:
        """See ``ConnectorModel``: a topic has no name of a relation."""
        yield "/connector/topic", None

    def faults(self) -> Iterator[Problem]:
        if not _TOPIC.fullmatch(self.topic) or self.topic in (".", ".."):
            yield Problem(
                "/connector/topic",
                "invalid_value",
                "the name of a topic has up to 249 letters, digits, dots, _ and -; write such a name",
            )
        if (self.connection is None) == (self.bootstrap is None):
            yield Problem(
                "/connector/connection",
                "invalid_value",
                "say where the topic is, once: `connection`, the name of a stored connection, or `bootstrap`, as host:port",
            )
        servers = [] if self.bootstrap is None else self.bootstrap.split(",")
        if not all(_SERVER.fullmatch(server.strip()) for server in servers):
            yield Problem(
                "/connector/bootstrap", "invalid_value", "write host:port, with commas between several, such as broker-1:9092"
            )
        if self.key is None and self.value is None and not self.record_columns:
            yield Problem(
                "/connector/value", "invalid_value", 'say how values are written, such as {"format": "json"}, or keys in `key`'
            )
        for column, what in self.record_columns.items():
            if what not in _FACTS and not (what.startswith(HEADER) and what != HEADER):
                yield Problem(
                    f"/connector/record_columns/{column}",
                    "invalid_value",
                    f"a column holds one of {', '.join(_FACTS)} or header:NAME of a record, not {what[:80]!r}",
                )
        yield from self._faults_of_sides()

    def _faults_of_sides(self) -> Iterator[Problem]:
        for name, side in (("key", self.key), ("value", self.value)):
            if side is None:
                continue
            for option in side.ignored():
                yield ignored_fault(f"/connector/{name}", option, side.format, "invalid_value")
            if side.registry is not None and side.schema_ is not None and "schema" in READ[side.format]:
                yield Problem(
                    f"/connector/{name}/schema", "invalid_value", "the registry has the schemas: leave out `schema` or `registry`"
                )
            if side.registry is not None and side.message and "message" in READ[side.format]:
                detail = "a payload behind a schema's number says itself which message it is: leave it out"
                yield Problem(f"/connector/{name}/message", "invalid_value", detail)
            yield from schema_faults(side, f"/connector/{name}", READ)
        if self.value is not None and self.value.format == CHANGES:
            yield from self._faults_of_changes(self.value)

    def _faults_of_changes(self, value: ValueFormat) -> Iterator[Problem]:
        if self.key is not None:
            detail = "change events have their rows' keys: leave `key` out"
            yield Problem("/connector/key", "invalid_value", detail)
        if value.encoding == "avro" and value.registry is None:
            detail = "change events in avro name their schemas: name the connection of a schema registry"
            yield Problem("/connector/value/registry", "invalid_value", detail)
        if value.time_unit == "s":
            yield Problem("/connector/value/time_unit", "invalid_value", "Debezium counts no seconds: write ms, us or ns")

    @classmethod
    def said_by_topic(cls, words: TopicWords) -> Mapping[str, Any]:
        value = _FORMATS.get(words.value_format)
        found: dict[str, Any] = {}
        if value is not None:
            delimiter = {} if words.value_delimiter == "," else {"delimiter": words.value_delimiter}
            found["value"] = {**value, **delimiter, **({"unwrapped": True} if words.is_unwrapped else {})}
        key = _FORMATS.get(words.key_format)
        if key is not None and words.has_key:
            delimiter = {} if words.key_delimiter == "," else {"delimiter": words.key_delimiter}
            found["key"] = {
                **key,
                **delimiter,
                **({"unwrapped": True} if words.is_single_key and words.key_format == "JSON" else {}),
            }
        return found

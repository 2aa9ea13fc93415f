"""What a definition says of results in a topic of Kafka. Pure: definitions are made of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal

from pydantic import Field

from engine.definition.deliveries.delivery import DeliveryModel
from engine.definition.sources.side_options import WRITTEN, ignored, ignored_fault, schema_faults
from engine.errors import Problem
from engine.expressions.model import NAME_PATTERN, Model, is_absent

FormatName = Literal["json", "avro", "protobuf", "delimited", "string", "bytes", "kafka"]
SubjectStrategy = Literal["record_name", "topic_record_name"]
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_RECORD: Final = r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*"
_REGISTERED: Final = ("json", "avro", "protobuf")


class DeliveredSide(Model):
    """How keys, or values, are written."""

    format: FormatName = Field(
        description="`kafka` is what Kafka's own serialisers write of one number, text or bytes.", examples=["json"]
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
        description="Of avro: the schema that is written; null: made of the columns. Messages of protobuf always are.",
    )
    message: str = Field(default="", max_length=1_000, description="Of no format that is written: leave it out.")
    subject_strategy: SubjectStrategy | None = Field(
        default=None,
        exclude_if=is_absent,
        description="Of a registry: the subject of the schema. `record_name`: the record's full name; `topic_record_name`: the topic, - and "
        "that name. Absent: the topic with -key or -value (Confluent's topic name strategy).",
    )
    record: str | None = Field(
        default=None,
        pattern=f"^{_RECORD}$",
        max_length=255,
        exclude_if=is_absent,
        description="Of a registry: full name of the record where its schema is made of the columns (the title of a JSON Schema).",
        examples=["shop.orders.PricedOrder"],
    )
    unwrapped: bool = Field(
        default=False, description="The one column stands alone, without an object or a record around it (json, avro)."
    )
    delimiter: str = Field(default=",", min_length=1, max_length=1, description="Of delimited: what stands between columns.")

    def faults_of_new(self, pointer: str) -> Iterator[Problem]:
        """Yield what is said and means nothing, and what nobody could read."""
        for option in ignored(self, self.format, WRITTEN):
            yield ignored_fault(pointer, option, self.format, "unsupported_option")
        yield from schema_faults(self, pointer, WRITTEN)

    def faults(self, pointer: str) -> Iterator[Problem]:
        """Yield what is wrong with how the schema is named."""
        for name, said in (("subject_strategy", self.subject_strategy), ("record", self.record)):
            if said is not None and (self.registry is None or self.format not in _REGISTERED):
                yield Problem(f"{pointer}/{name}", "unsupported_option", f"`{name}` is of a schema in a registry; leave it out")
        if self.record is not None and self.schema_ is not None:
            yield Problem(f"{pointer}/record", "unsupported_option", "the `schema` has a name of its own; leave `record` out")
        if self.subject_strategy is not None and self.record is None and self.schema_ is None:
            detail = f"the subject strategy {self.subject_strategy} needs the record's full name; say `record`, or give `schema`"
            yield Problem(f"{pointer}/record", "invalid_value", detail)


class DeliveredValue(DeliveredSide):
    """How values are written."""

    has_key: bool = Field(default=True, description="The key's columns stand in the value as well.")


class NewTopic(Model):
    """How a topic is made that is not there."""

    partitions: int = Field(default=1, ge=1, le=10_000, description="How many it has.")
    replication: int = Field(default=-1, ge=-1, le=32_767, description="Copies of each; -1: as the brokers are set up.")
    cleanup_policy: Literal["delete", "compact", "compact,delete"] | None = Field(
        default=None, description="null: `compact` for a table, `delete` for a stream."
    )


class KafkaDelivery(DeliveryModel):
    """A topic of Kafka. A record's timestamp is the result's event time; a deleted row of a table is a record without a value."""

    type: Literal["kafka"] = Field(description="A topic of Kafka.")
    connection: str = Field(
        pattern=NAME_PATTERN, description="Name of a connection of type kafka (`PUT /v1/connections/{name}`)."
    )
    topic: str = Field(min_length=1, max_length=249, description="Its name.", examples=["priced_orders"])
    key: DeliveredSide | None = Field(
        default=None,
        description="How keys are written: they hold the result's key. null: as json; records of a result without a key have none.",
    )
    value: DeliveredValue = Field(
        default=DeliveredValue(format="json"), description="How values are written: they hold the result's columns."
    )
    create: NewTopic | None = Field(default=None, description="Make the topic where it is not there; null: it must be there.")
    guarantee: Literal["exactly_once", "at_least_once"] = Field(
        default="exactly_once",
        description="`exactly_once`: transactions, for readers with `read_committed`. `at_least_once`: no transactions; what may be there twice "
        "is in the headers `slackwater-delivery` and `slackwater-sequence`.",
    )

    def faults(self, columns: tuple[str, ...], key: tuple[str, ...], *, is_table: bool) -> Iterator[Problem]:
        yield from super().faults(columns, key, is_table=is_table)
        if not _TOPIC.fullmatch(self.topic) or self.topic in (".", ".."):
            yield Problem(
                "/into/connector/topic", "invalid_value",
                "the name of a topic has up to 249 letters, digits, dots, _ and -; write such a name",
            )  # fmt: skip
        yield from self.value.faults("/into/connector/value")
        if self.key is not None:
            yield from self.key.faults("/into/connector/key")
        if self.key is not None and not key:
            yield Problem("/into/connector/key", "unsupported_option", "the result has no key; leave `key` out")
        if is_table and not key:
            yield Problem(
                "/into/connector",
                "unsupported_option",
                "a table of one row has no key to tell its changes apart; deliver a stream",
            )
        if not self.value.has_key and not set(columns) - set(key):
            yield Problem(
                "/into/connector/value/has_key",
                "unsupported_option",
                "without its key the value has no column; leave has_key out",
            )

    def faults_of_new(self) -> Iterator[Problem]:
        for name, side in (("value", self.value), ("key", self.key)):
            if side is not None:
                yield from side.faults_of_new(f"/into/connector/{name}")

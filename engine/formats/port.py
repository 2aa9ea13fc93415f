"""The port of formats for readers of topics and bodies, and for writers of results: bytes to columns and back, whole batches at a time.

A *side* is the keys or the values of a topic. Readers check only their own syntax; ``canonicalise`` validates their results, as for JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import polars as pl

from engine.definition.record_formats import DEFAULT_DELIMITER
from engine.definition.relations import EventTimeUnit
from engine.errors import ExternalError, UserError
from engine.expressions.types.types import Schema

SideName = Literal["key", "value"]


class FormatInvalid(ValueError):
    """A side's settings do not fit together, or do not fit its columns. The text names the setting and what to do.

    Attributes:
        setting: its name, if only one is wrong; else empty.
    """

    def __init__(self, detail: str, setting: str = "") -> None:
        super().__init__(detail)
        self.setting = setting


@dataclass(frozen=True, slots=True)
class SideConfig:
    """The settings of a topic's keys, or of its values.

    Attributes:
        format: a name in ``FORMATS``.
        columns: of the side, in order.
        side: which one; the registry's subjects follow from it.
        schema: text of an Avro schema or a ``.proto`` file, if no registry has it.
        references: name (of a file, for Protocol Buffers) and text of each schema that the schema uses, each after those that it uses itself.
        message: full name of the message, for Protocol Buffers; empty: the first of the file.
        has_registry: payloads begin with the number of a registered schema.
        subject: the registry's subject for the schema of results.
        record: full name of results' record if its schema is derived from the columns; empty: made from the subject.
        is_unwrapped: the one column is bare, without an object or record around it.
        delimiter: of ``delimited``.
        time_unit: unit of plain numbers in columns of type timestamp, if no schema has it (JSON).
    """

    format: str
    columns: Schema
    side: SideName = "value"
    schema: str | None = None
    references: tuple[tuple[str, str], ...] = ()
    message: str = ""
    has_registry: bool = False
    subject: str = ""
    is_unwrapped: bool = False
    delimiter: str = DEFAULT_DELIMITER
    time_unit: EventTimeUnit = "ms"
    record: str = ""

    @property
    def single(self) -> str:
        """The name of the one column.

        Raises:
            FormatInvalid: there are none or several.
        """
        if len(self.columns) != 1:
            raise FormatInvalid(
                f"{self.format} holds one column, and the {self.side} has {len(self.columns)}: {', '.join(self.columns.names) or 'none'}"
            )
        return self.columns.names[0]


class Read(NamedTuple):
    """The content of payloads.

    Attributes:
        raw: a row for each readable payload, with the side's columns as ``conform`` takes them and its place ``_offset``.
        rejects: the others, with their place as ``offset``.
    """

    raw: pl.DataFrame
    rejects: pl.DataFrame


class Reader(Protocol):
    """Reads payloads of one side."""

    def read(self, payloads: pl.Series) -> Read:
        """Read payloads, none of which is null.

        Raises:
            RegistryUnavailable: a schema is not known here and the registry gives no answer: try again.
        """
        ...


class Writer(Protocol):
    """Writes payloads of one side."""

    def write(self, frame: pl.DataFrame) -> pl.Series:
        """Return a payload for each row of the side's columns, never null: the caller decides whether a row is a tombstone.

        Raises:
            ValueNotWritable: the schema cannot hold a value.
            RegistryUnavailable: the schema could not be registered: try again.
        """
        ...


class ValueNotWritable(ValueError):
    """A format's schema cannot hold a result's value. The text names the column."""


@dataclass(frozen=True, slots=True)
class Format:
    """A format's entry.

    Attributes:
        name: as in definitions.
        reader: settings and the registry → reader.
        writer: settings and the registry → writer.
        takes_registry: payloads can begin with the number of a registered schema.
    """

    name: str
    reader: Callable[[SideConfig, SchemaStore], Reader]
    writer: Callable[[SideConfig, SchemaStore], Writer]
    takes_registry: bool = False


SchemaKind = Literal["AVRO", "PROTOBUF", "JSON"]


class RegistryUnavailable(ExternalError):
    """The registry gives no answer, or asks to come back later: the batch is read again later."""

    code = "registry_unavailable"
    retryable = True


class RegistryRefused(UserError):
    """The registry answers and refuses: wrong credentials, an incompatible schema, a schema that it calls invalid."""

    code = "registry_refused"


class SchemaUnknown(UserError):
    """The registry has no schema of this number: a payload with this number cannot be read, now or later."""

    code = "unknown_schema"


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema from the registry.

    Attributes:
        number: its id.
        kind: its language.
        text: of the schema.
        references: name and text of the schemas that it uses, each after those that it uses itself.
    """

    number: int
    kind: SchemaKind
    text: str
    references: tuple[tuple[str, str], ...] = ()


class SchemaStore(Protocol):
    """Asks a registry, and caches its answers."""

    def by_number(self, number: int) -> RegisteredSchema:
        """Return a schema.

        Raises:
            SchemaUnknown: there is none of this number.
            RegistryUnavailable: the registry gives no answer.
            RegistryRefused: it refuses this service.
        """
        ...

    def register(self, subject: str, schema: RegisteredSchema) -> int:
        """Return the number of a schema under a subject; register it if it has none. ``schema.number`` does not count.

        Raises:
            RegistryRefused: the schema does not fit the subject's compatibility.
            RegistryUnavailable: the registry gives no answer.
        """
        ...


class _NoRegistry:
    """The store if no registry is set."""

    def by_number(self, number: int) -> RegisteredSchema:
        raise RegistryRefused(f"a record names schema {number}, and no registry is set; give registry.url")

    def register(self, subject: str, schema: RegisteredSchema) -> int:  # noqa: ARG002 - a port's
        raise RegistryRefused(f"the schema of {subject} cannot be registered, for no registry is set; give registry.url")


NO_REGISTRY: SchemaStore = _NoRegistry()

"""What a format is to those who read topics and bodies, or write results: bytes to columns and columns to bytes, whole batches at a time.

A *side* is the keys or the values of a topic. Readers judge their own syntax only; ``canonicalise`` judges what they give, as it judges JSON.
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
    """A side's settings do not fit together, or not its columns. The text names the setting and what to do.

    Attributes:
        setting: its name, where one alone is to blame; else empty.
    """

    def __init__(self, detail: str, setting: str = "") -> None:
        super().__init__(detail)
        self.setting = setting


@dataclass(frozen=True, slots=True)
class SideConfig:
    """What is said of a topic's keys, or of its values.

    Attributes:
        format: a name in ``FORMATS``.
        columns: what the side holds, in order.
        side: which one; the registry's subjects follow from it.
        schema: text of an Avro schema or a ``.proto`` file, where no registry has it.
        references: name (of a file, for Protocol Buffers) and text of what the schema refers to, each behind what it uses itself.
        message: full name of the message, of Protocol Buffers; empty: the first of the file.
        has_registry: payloads begin with the number of a schema that the registry has.
        subject: under which results' schema stands in the registry.
        record: full name of results' record where its schema is derived from the columns; empty: one is made of the subject.
        is_unwrapped: the one column stands alone, without an object or record around it.
        delimiter: of ``delimited``.
        time_unit: what plain numbers in columns of type timestamp count, where no schema says it (JSON).
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
        """The one column's name.

        Raises:
            FormatInvalid: there are none or several.
        """
        if len(self.columns) != 1:
            raise FormatInvalid(
                f"{self.format} holds one column, and the {self.side} has {len(self.columns)}: {', '.join(self.columns.names) or 'none'}"
            )
        return self.columns.names[0]


class Read(NamedTuple):
    """What payloads hold.

    Attributes:
        raw: a row for each payload that was read, with the side's columns as ``conform`` takes them and ``_offset``, its place.
        rejects: the others, ``offset`` being their place.
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
        """Return a payload for each row of the side's columns, never null: whether a row is a tombstone the caller knows.

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
        name: as definitions say it.
        reader: settings and the registry → what reads.
        writer: settings and the registry → what writes.
        takes_registry: payloads can begin with the number of a registered schema.
    """

    name: str
    reader: Callable[[SideConfig, SchemaStore], Reader]
    writer: Callable[[SideConfig, SchemaStore], Writer]
    takes_registry: bool = False


SchemaKind = Literal["AVRO", "PROTOBUF", "JSON"]


class RegistryUnavailable(ExternalError):
    """The registry gives no answer, or one that says to come back: the batch is read again later."""

    code = "registry_unavailable"
    retryable = True


class RegistryRefused(UserError):
    """The registry answers and refuses: wrong credentials, an incompatible schema, a schema that it calls invalid."""

    code = "registry_refused"


class SchemaUnknown(UserError):
    """The registry has no schema of this number: what says so cannot be read, now or later."""

    code = "unknown_schema"


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as the registry has it.

    Attributes:
        number: its id.
        kind: its language.
        text: what it says.
        references: name and text of what it refers to, each behind those that it uses itself.
    """

    number: int
    kind: SchemaKind
    text: str
    references: tuple[tuple[str, str], ...] = ()


class SchemaStore(Protocol):
    """Asks a registry, and remembers."""

    def by_number(self, number: int) -> RegisteredSchema:
        """Return a schema.

        Raises:
            SchemaUnknown: there is none of this number.
            RegistryUnavailable: nobody can say.
            RegistryRefused: it may not be asked.
        """
        ...

    def register(self, subject: str, schema: RegisteredSchema) -> int:
        """Return the number of a schema under a subject, which is given one if it has none. ``schema.number`` does not count.

        Raises:
            RegistryRefused: the schema does not fit the subject's compatibility.
            RegistryUnavailable: nobody can say.
        """
        ...


class _NoRegistry:
    """Stands where no registry is set."""

    def by_number(self, number: int) -> RegisteredSchema:
        raise RegistryRefused(f"a record names schema {number}, and no registry is set; give registry.url")

    def register(self, subject: str, schema: RegisteredSchema) -> int:  # noqa: ARG002 - a port's
        raise RegistryRefused(f"the schema of {subject} cannot be registered, for no registry is set; give registry.url")


NO_REGISTRY: SchemaStore = _NoRegistry()

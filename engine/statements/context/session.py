"""What a statement is bound against: relations as SQL sees them, named types and settings. Frozen; ``after`` gives the next one.

A relation of SQL has columns in the spelling of SQL (``ORDER_ID``). The bounds of its windows, where its key has them, are not among them:
in definitions they are the columns ``window_start`` and ``window_end`` behind the key, in statements WINDOWSTART and WINDOWEND.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from engine.expressions.python_functions import FunctionDefinition
from engine.expressions.types.types import ColumnType, Schema
from engine.plan.catalog import CatalogEntry
from engine.sql.statement_tree import RelationKind
from engine.statements.context.naming import lowered

WINDOW_BOUNDS = ("window_start", "window_end")
"""What the bounds of windows are called in definitions. SQL's own names are in upper case, so that they clash with none."""


@dataclass(frozen=True, slots=True)
class Format:
    """How the keys or the values of a topic are written.

    Attributes:
        name: ``JSON``, ``DELIMITED``, ``KAFKA``, ``NONE``, …
        delimiter: of DELIMITED: what stands between values.
    """

    name: str
    delimiter: str = ","


@dataclass(frozen=True, slots=True)
class Topic:
    """Where a relation's records are, and how they are written.

    Attributes:
        name: as KAFKA_TOPIC gives it.
        is_wrapped: a single value column stands in an object; None where neither the statement nor a setting says so.
        timestamp: the column that gives the event time of what is written; None: the event time of the row.
        timestamp_format: how it is written where it is a text, in Java's patterns.
    """

    name: str
    key_format: Format
    value_format: Format
    partitions: int | None = None
    is_wrapped: bool | None = None
    timestamp: str | None = None
    timestamp_format: str | None = None


@dataclass(frozen=True, slots=True)
class KeyWindow:
    """The windows of a windowed key. ``size_ms`` is None for sessions."""

    type: Literal["tumbling", "hopping", "session", "sliding"]
    size_ms: int | None


@dataclass(frozen=True, slots=True)
class SqlRelation:
    """A stream or a table as statements see it.

    Attributes:
        name: as statements write it once letters are folded: ``ORDERS``.
        kind: stream or table.
        columns: key columns first, then the value's, each in its order; without the bounds of windows.
        key: names of the key's columns; none where records have no key.
        topic: where its records are.
        entry: the relation as plans read it, under its name in definitions.
        window: of a windowed key, else None.
        writers: names of the queries that write it, the one that made it first.
    """

    name: str
    kind: RelationKind
    columns: Schema
    key: tuple[str, ...]
    topic: Topic
    entry: CatalogEntry
    window: KeyWindow | None = None
    writers: tuple[str, ...] = ()

    @property
    def values(self) -> tuple[str, ...]:
        """The names of the columns that are not of the key."""
        return tuple(name for name in self.columns.names if name not in self.key)

    @property
    def is_read_only(self) -> bool:
        """Whether nothing may be written to it (CREATE SOURCE ...)."""
        return self.entry.is_read_only

    @property
    def definition_name(self) -> str:
        """Its name in definitions: ``orders``."""
        return self.entry.relation.name


@dataclass(frozen=True, slots=True)
class Settings:
    """What statements do where they do not say.

    Attributes:
        default_grace: of windows without GRACE PERIOD: 0 (KLIP-10), or ksqlDB's 24 hours less the size, with EMIT FINAL 0.
        values: by name: what SET and the properties of a request say (``ksql.persistence.default.format.value``, ``auto.offset.reset``).
    """

    default_grace: Literal["klip10", "ksqldb"] = "klip10"
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Session:
    """What is known when a statement is bound.

    Attributes:
        relations: by their folded names.
        queries: names of queries → folded name of the relation that each writes.
        types: named types by their folded names.
        variables: of DEFINE.
        functions: in Python, by name in lower case.
    """

    relations: Mapping[str, SqlRelation] = field(default_factory=dict)
    queries: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, ColumnType] = field(default_factory=dict)
    settings: Settings = Settings()
    variables: Mapping[str, str] = field(default_factory=dict)
    functions: Mapping[str, FunctionDefinition] = field(default_factory=dict)

    def relation(self, name: str) -> SqlRelation | None:
        """Return the relation that a folded name means; None where there is none.

        A catalog keeps the names of definitions alone, so that `Orders` in quotes means ORDERS where nothing is called so exactly.
        """
        found = self.relations.get(name)
        if found is not None:
            return found
        own = lowered(name)
        return next((each for each in self.relations.values() if each.definition_name == own), None)

"""The nodes of statements: what stands in a script. Names are as they were written; binding folds letters.

Fields follow the order of the text. What a clause of ours adds to ksqlDB's grammar says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.sql.tree import FieldType, Identifier, Node, Text, TypeName

RelationKind = Literal["stream", "table"]
JoinType = Literal["inner", "left", "right", "outer"]
Late = Literal["join", "drop", "divert"]
Expired = Literal["null", "drop", "divert"]
History = Literal["complete", "latest"]
Unmatched = Literal["eager", "when_closed"]
ShownKind = Literal[
    "streams", "tables", "topics", "queries", "functions", "properties", "types", "variables", "late_records", "connectors",
    "connector_plugins",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Statement(Node):
    """One statement of a script, without its semicolon."""


@dataclass(frozen=True, slots=True)
class Property(Node):
    """``NAME = value`` of WITH (...): the name is a word or a quoted text, the value a literal."""

    name: Identifier | Text
    value: Node


@dataclass(frozen=True, slots=True)
class Duration(Node):
    """``5 MINUTES``: a whole number and its unit, in upper case and plural (``MILLISECONDS`` to ``DAYS``)."""

    amount: str
    unit: str


# ------------------------------------------------------------------ queries
@dataclass(frozen=True, slots=True)
class SelectItem(Node):
    """``expression [[AS] name] | * | a.* | s->*``: an item of a SELECT."""

    value: Node
    alias: Identifier | None = None


@dataclass(frozen=True, slots=True)
class TimeTravel(Node):
    """Ours: ``FOR SYSTEM_TIME AS OF t | FROM a TO b``: rows of then, or versions."""

    at: Node
    until: Node | None = None


@dataclass(frozen=True, slots=True)
class Relation(Node):
    """``name [[AS] alias] [FOR SYSTEM_TIME ...]``: a relation in FROM or JOIN."""

    name: Identifier
    alias: Identifier | None = None
    time: TimeTravel | None = None


@dataclass(frozen=True, slots=True)
class Within(Node):
    """``WITHIN d`` (both sides), ``WITHIN (before, after)``."""

    before: Duration
    after: Duration


@dataclass(frozen=True, slots=True)
class HoldClause(Node):
    """Ours: ``HOLD UNTIL TABLE TIME | CAUGHT UP [PLUS d], AT MOST d [, n ROWS]``."""

    until: Literal["table_time", "caught_up"]
    at_most: Duration
    slack: Duration | None = None
    max_rows: str | None = None


@dataclass(frozen=True, slots=True)
class JoinClause(Node):
    """``[INNER | LEFT | RIGHT | FULL [OUTER]] JOIN relation [WITHIN ...] [GRACE PERIOD d] [ours] ON condition``.

    Ours, in this order: ``UNVERSIONED`` (only behind GRACE PERIOD: else it would be an alias), ``LATE JOIN|DROP|DIVERT``,
    ``EXPIRED NULL|DROP|DIVERT``, ``HOLD ...``, ``HISTORY COMPLETE|LATEST``, ``UNMATCHED EAGER|WHEN CLOSED``.
    """

    type: JoinType
    relation: Relation
    within: Within | None = None
    grace: Duration | None = None
    is_unversioned: bool = False
    late: Late | None = None
    expired: Expired | None = None
    hold: HoldClause | None = None
    history: History | None = None
    unmatched: Unmatched | None = None
    on: Node | None = None


@dataclass(frozen=True, slots=True)
class WindowClause(Node):
    """``WINDOW [name] TUMBLING (SIZE d) | HOPPING (SIZE d, ADVANCE BY d) | SESSION (d) | SLIDING (DIFFERENCE d)``.

    ``RETENTION d`` and ``GRACE PERIOD d`` stand inside. Sliding ones are ours.
    """

    type: Literal["tumbling", "hopping", "session", "sliding"]
    length: Duration
    advance: Duration | None = None
    retention: Duration | None = None
    grace: Duration | None = None
    name: Identifier | None = None


@dataclass(frozen=True, slots=True)
class BufferClause(Node):
    """Ours: ``BUFFER n ROWS | n BYTES|KB|MB|GB [, ...] [ON FULL EMIT | STOP]``."""

    max_rows: str | None = None
    max_bytes: str | None = None
    when_full: Literal["emit_early", "stop"] | None = None


@dataclass(frozen=True, slots=True)
class EmitClause(Node):
    """``EMIT CHANGES | FINAL``: when results are shown.

    Ours: ``EMIT FINAL KEEP OPEN``, ``EMIT CHANGES EVERY d [EVENT DRIVEN]`` (wall clock, KIP-424),
    ``EMIT CHANGES WAIT d`` (event time), each with ``BUFFER ...``; ``EMIT AT WINDOW END THEN CHANGES``; ``EMIT ALL``; ``IDLE AFTER d``;
    ``CLOCK FASTEST | SLOWEST``.
    """

    mode: Literal["changes", "final", "window_end", "all"]
    keeps_open: bool = False
    every: Duration | None = None
    is_event_driven: bool = False
    wait: Duration | None = None
    buffer: BufferClause | None = None
    idle_after: Duration | None = None
    clock: Literal["fastest", "slowest"] | None = None


@dataclass(frozen=True, slots=True)
class Select(Statement):
    """``SELECT items FROM relation [JOIN ...] [WINDOW ...] [WHERE c] [GROUP BY e, ...] [PARTITION BY e, ...] [HAVING c] [EMIT ...] [LIMIT n]``.

    Of a CREATE ... AS or INSERT INTO; else a push query (with EMIT) or a pull query (without), which may end with ours:
    ``WAIT FOR POSITION '...' UP TO d``.
    """

    items: tuple[SelectItem, ...]
    relation: Relation
    joins: tuple[JoinClause, ...] = ()
    window: WindowClause | None = None
    where: Node | None = None
    group_by: tuple[Node, ...] = ()
    partition_by: tuple[Node, ...] = ()
    having: Node | None = None
    emit: EmitClause | None = None
    limit: str | None = None
    wait_for_position: Text | None = None
    wait_up_to: Duration | None = None


# ------------------------------------------------------------------ definitions
@dataclass(frozen=True, slots=True)
class ColumnDefinition(Node):
    """``name type [KEY | PRIMARY KEY | HEADERS | HEADER('k')]``."""

    name: Identifier
    type: TypeName
    role: Literal["value", "key", "primary_key", "headers"] = "value"
    header: Text | None = None


@dataclass(frozen=True, slots=True)
class CreateRelation(Statement):
    """``CREATE [OR REPLACE] [SOURCE] STREAM|TABLE [IF NOT EXISTS] name (columns) [HISTORY RETENTION d] WITH (properties)``."""

    kind: RelationKind
    name: Identifier
    columns: tuple[ColumnDefinition, ...] = ()
    history_retention: Duration | None = None
    properties: tuple[Property, ...] = ()
    is_replace: bool = False
    is_read_only: bool = False
    is_if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateAs(Statement):
    """``CREATE [OR REPLACE] STREAM|TABLE [IF NOT EXISTS] name [HISTORY RETENTION d] [WITH (...)] AS query``."""

    kind: RelationKind
    name: Identifier
    query: Select
    history_retention: Duration | None = None
    properties: tuple[Property, ...] = ()
    is_replace: bool = False
    is_if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class InsertQuery(Statement):
    """``INSERT INTO name [WITH (...)] query``."""

    name: Identifier
    query: Select
    properties: tuple[Property, ...] = ()


@dataclass(frozen=True, slots=True)
class Row(Node):
    """``(value, ...)`` of INSERT ... VALUES."""

    values: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class InsertValues(Statement):
    """``INSERT INTO name [(columns)] VALUES (...), (...)``; several rows are ours."""

    name: Identifier
    columns: tuple[Identifier, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class CreateType(Statement):
    """``CREATE TYPE [IF NOT EXISTS] name AS type``."""

    name: Identifier
    type: TypeName
    is_if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateFunction(Statement):
    """Ours: ``CREATE [OR REPLACE] FUNCTION name(a type, ...) RETURNS type LANGUAGE PYTHON [WITH (...)] AS $$ ... $$``."""

    name: Identifier
    parameters: tuple[FieldType, ...]
    returns: TypeName
    body: Text
    properties: tuple[Property, ...] = ()
    is_replace: bool = False


@dataclass(frozen=True, slots=True)
class Drop(Statement):
    """``DROP STREAM|TABLE|TYPE|FUNCTION [IF EXISTS] name [DELETE TOPIC]``."""

    what: Literal["stream", "table", "type", "function"]
    name: Identifier
    is_if_exists: bool = False
    deletes_topic: bool = False


@dataclass(frozen=True, slots=True)
class AlterAdd(Statement):
    """``ALTER STREAM|TABLE name ADD [COLUMN] c type, ...``."""

    kind: RelationKind
    name: Identifier
    columns: tuple[ColumnDefinition, ...]


# ------------------------------------------------------------------ running queries
@dataclass(frozen=True, slots=True)
class Control(Statement):
    """``TERMINATE | PAUSE | RESUME query | ALL``."""

    action: Literal["terminate", "pause", "resume"]
    query: Identifier | None


# ------------------------------------------------------------------ looking
@dataclass(frozen=True, slots=True)
class Show(Statement):
    """``SHOW | LIST what [EXTENDED]``, ``SHOW ALL TOPICS``; ours: ``SHOW LATE RECORDS OF query [LIMIT n]``."""

    what: ShownKind
    is_extended: bool = False
    of: Identifier | None = None
    limit: str | None = None
    is_all: bool = False


@dataclass(frozen=True, slots=True)
class Describe(Statement):
    """``DESCRIBE name | STREAMS | TABLES | FUNCTION name [EXTENDED]``."""

    what: Literal["relation", "streams", "tables", "function"]
    name: Identifier | None = None
    is_extended: bool = False


@dataclass(frozen=True, slots=True)
class Explain(Statement):
    """``EXPLAIN query_id | statement``."""

    what: Identifier | Statement


@dataclass(frozen=True, slots=True)
class ExplainWhy(Statement):
    """Ours: ``EXPLAIN WHY query KEY (value, ...) AT time``."""

    query: Identifier
    key: tuple[Node, ...]
    at: Node | None = None


@dataclass(frozen=True, slots=True)
class Print(Statement):
    """``PRINT topic [FROM BEGINNING] [INTERVAL|SAMPLE n] [LIMIT n]``."""

    topic: Identifier | Text
    is_from_beginning: bool = False
    interval: str | None = None
    limit: str | None = None


# ------------------------------------------------------------------ the session
@dataclass(frozen=True, slots=True)
class SetProperty(Statement):
    """``SET 'name' = 'value'``, ``UNSET 'name'``."""

    name: Text
    value: Text | None


@dataclass(frozen=True, slots=True)
class Define(Statement):
    """``DEFINE name = 'value'``, ``UNDEFINE name``."""

    name: Identifier
    value: Text | None


# ------------------------------------------------------------------ assertions
@dataclass(frozen=True, slots=True)
class AssertTopic(Statement):
    """``ASSERT [NOT EXISTS] TOPIC name [WITH (...)] [TIMEOUT d]``."""

    topic: Identifier | Text
    properties: tuple[Property, ...] = ()
    is_missing: bool = False
    timeout: Duration | None = None


@dataclass(frozen=True, slots=True)
class AssertValues(Statement):
    """``ASSERT [NULL] VALUES name (columns) VALUES (...)``: the next record of a relation; for tests."""

    name: Identifier
    columns: tuple[Identifier, ...]
    row: Row
    is_null: bool = False


@dataclass(frozen=True, slots=True)
class AssertRelation(Statement):
    """``ASSERT STREAM | TABLE name (columns) WITH (...)``: what a relation is; for tests."""

    relation: CreateRelation


@dataclass(frozen=True, slots=True)
class Refused(Statement):
    """What is part of ksqlDB's language and cannot be had here, told by its first words (``CREATE SOURCE CONNECTOR``)."""

    words: str

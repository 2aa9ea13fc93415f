"""What a bound statement asks for. Whoever carries an action out needs the statement no more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from engine.definition.queries import QueryDefinition
from engine.definition.relations import SourceDefinition
from engine.expressions.python_functions import FunctionDefinition
from engine.expressions.types.types import ColumnType, Schema
from engine.plan.model import Plan
from engine.sql.statement_tree import CreateAs, CreateRelation, Statement
from engine.statements.context.faults import StatementRefused, StatementUnsupported
from engine.statements.context.naming import folded
from engine.statements.context.session import Session, SqlRelation


@dataclass(frozen=True, slots=True)
class Action:
    """What is to be done."""


@dataclass(frozen=True, slots=True)
class Nothing(Action):
    """There is nothing to do; ``sentence`` says why (IF NOT EXISTS, IF EXISTS)."""

    sentence: str


@dataclass(frozen=True, slots=True)
class RegisterSource(Action):
    """Register a source, or put it in the place of the one with its name."""

    relation: SqlRelation
    definition: SourceDefinition
    is_replace: bool = False


@dataclass(frozen=True, slots=True)
class CreateQuery(Action):
    """Create a query and the relation that it writes.

    Attributes:
        relation: the result.
        definition: what the query is.
        plan: made of the definition, against the session's catalog.
        is_replace: change the query that writes the relation.
        discards_state: start from scratch where what it keeps does not fit the change.
        notes: what the statement left open and how it was understood, in sentences.
    """

    relation: SqlRelation
    definition: QueryDefinition
    plan: Plan
    is_replace: bool = False
    discards_state: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InsertInto(Action):
    """Create a query that writes into a relation that there is; ``definition.into`` names it."""

    target: SqlRelation
    definition: QueryDefinition
    plan: Plan
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InsertRecords(Action):
    """Append records to a relation.

    Attributes:
        rows: column → value as JSON shows it; columns that are not given are missing. A row whose value is None is a tombstone.
        times_ms: event time of each row, None: the time of its arrival.
    """

    relation: SqlRelation
    rows: tuple[Mapping[str, Any], ...]
    times_ms: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class AddColumns(Action):
    """Add columns to a source."""

    relation: SqlRelation
    columns: Schema


@dataclass(frozen=True, slots=True)
class DropRelation(Action):
    """Remove a relation, and the query that made it."""

    relation: SqlRelation
    deletes_topic: bool = False


@dataclass(frozen=True, slots=True)
class RegisterType(Action):
    """Give a type a name."""

    name: str
    type: ColumnType


@dataclass(frozen=True, slots=True)
class DropType(Action):
    """Forget the name of a type."""

    name: str


@dataclass(frozen=True, slots=True)
class RegisterFunction(Action):
    """Register a function in Python, or put it in the place of the one with its name."""

    name: str
    definition: FunctionDefinition


@dataclass(frozen=True, slots=True)
class DropFunction(Action):
    """Forget a function; queries keep the copies that they have."""

    name: str


@dataclass(frozen=True, slots=True)
class ControlQuery(Action):
    """Stop, pause or resume queries; ``queries`` names them."""

    action: Literal["terminate", "pause", "resume"]
    queries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChangeSetting(Action):
    """Set, or with None unset, a property of the session."""

    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class ChangeVariable(Action):
    """Define, or with None undefine, a variable of the session."""

    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class Look(Action):
    """Answer a statement that changes nothing: SHOW, DESCRIBE, EXPLAIN, PRINT, ASSERT and SELECT."""

    statement: Statement


def existing_relation(statement: CreateRelation | CreateAs, session: Session) -> Nothing | None:
    """Return that nothing is to do, for there is the relation and the statement lets it be; None where it is to be made.

    Raises:
        StatementRefused: ``relation_exists``.
        StatementUnsupported: a name differs from another one's in case or signs only.
    """
    name = folded(statement.name)
    known = session.relation(name)
    if known is None:
        return None
    if statement.is_if_not_exists:
        return Nothing(f"there is a {known.kind} {known.name} already")
    if not statement.is_replace and known.name != name:
        detail = f"{name} and {known.name} would be one relation here: names are distinguished by their letters and digits, whatever their case"
        raise StatementUnsupported("name_not_supported", detail, statement.name)
    if not statement.is_replace:
        raise StatementRefused(
            "relation_exists",
            f"there is a {known.kind} {name} already: choose another name, or write CREATE OR REPLACE",
            statement.name,
        )
    return None

"""CREATE STREAM and CREATE TABLE without columns, or with those of the key alone: what is to be asked for them, and the statement with them.

Nothing is asked here. Names stay as the records have them: later statements write those that are not in upper case in quotes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from engine.definition.relations import SourceDefinition
from engine.expressions.types.types import STRING, ColumnType
from engine.sql.statement_tree import ColumnDefinition, CreateRelation
from engine.sql.tree import Identifier
from engine.statements.actions import RegisterSource
from engine.statements.context.naming import folded
from engine.statements.context.session import Session
from engine.statements.context.type_names import type_name
from engine.statements.sources.sources import bind_source

_STAND_IN: Final = "inferred"
_OF_COLUMNS: Final = ("KEY", "TIMESTAMP", "TIMESTAMP_FORMAT", "EVENT_TIME_UNIT", "EVENT_TIME_FORMAT")
"""Properties that say something of columns."""


@dataclass(frozen=True, slots=True)
class InferenceRequest:
    """What is to be asked.

    Attributes:
        name: of the relation, as definitions have it.
        definition: of which the connector counts alone.
        key: names of the key's columns that the statement declares.
    """

    name: str
    definition: SourceDefinition
    key: tuple[str, ...]


def inference_request(statement: CreateRelation, session: Session) -> InferenceRequest | None:
    """Say what is to be asked for a statement's columns; None: it declares them, or nothing else than it says what records hold.

    Raises:
        StatementRefused, StatementUnsupported: the rest of it is wrong.
    """
    if any(each.role in ("value", "headers") for each in statement.columns):
        return None
    key = tuple(folded(each.name) for each in statement.columns)
    stand_ins = [_column(_STAND_IN, STRING, "value", statement)]
    if not key and statement.kind == "table":
        stand_ins.insert(0, _column(f"{_STAND_IN}_key", STRING, "primary_key", statement))
    properties = tuple(each for each in statement.properties if folded(each.name).upper() not in _OF_COLUMNS)
    action = bind_source(replace(statement, columns=(*statement.columns, *stand_ins), properties=properties), session)
    if not isinstance(action, RegisterSource) or action.definition.connector.traits.is_kept_here:
        return None
    return InferenceRequest(action.relation.definition_name, action.definition, key)


def with_columns(statement: CreateRelation, columns: Mapping[str, ColumnType], key: Collection[str]) -> CreateRelation:
    """Return a statement that declares what was found beside the columns that it declares itself.

    Args:
        statement: see ``inference_request``.
        columns: that were found.
        key: what of them is the key, where the statement declares none.
    """
    declared = {folded(each.name) for each in statement.columns}
    role: Literal["key", "primary_key"] = "primary_key" if statement.kind == "table" else "key"
    further = [
        _column(name, kind, role if name in key and not declared else "value", statement)
        for name, kind in columns.items()
        if name not in declared
    ]
    return replace(statement, columns=(*statement.columns, *further))


def _column(
    name: str, kind: ColumnType, role: Literal["key", "primary_key", "value"], statement: CreateRelation
) -> ColumnDefinition:
    span = statement.name.span
    return ColumnDefinition(Identifier(name, is_quoted=True, span=span), type_name(kind, statement.name), role, span=span)

"""What both statements that create a relation ask first: whether its name is free."""

from __future__ import annotations

from engine.sql.statement_tree import CreateAs, CreateRelation
from engine.statements.actions import Nothing
from engine.statements.context.faults import StatementRefused, StatementUnsupported
from engine.statements.context.naming import folded
from engine.statements.context.session import Session


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

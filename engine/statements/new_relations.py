"""What both statements that create a relation ask first: whether its name is free, and what definitions will call it."""

from __future__ import annotations

from engine.sql.statement_tree import CreateAs, CreateRelation
from engine.statements.actions import Nothing
from engine.statements.faults import StatementRefused, StatementUnsupported
from engine.statements.naming import definition_name, folded
from engine.statements.session import Session


def kept(statement: CreateRelation | CreateAs, session: Session) -> Nothing | None:
    """Return that nothing is to do, for there is the relation and the statement lets it be; None where it is to be made.

    Raises:
        StatementRefused: ``relation_exists``.
    """
    name = folded(statement.name)
    known = session.relations.get(name)
    if known is None:
        return None
    if statement.is_if_not_exists:
        return Nothing(f"there is a {known.kind} {name} already")
    if not statement.is_replace:
        raise StatementRefused(
            "relation_exists",
            f"there is a {known.kind} {name} already: choose another name, or write CREATE OR REPLACE",
            statement.name,
        )
    return None


def own_name(name: str, statement: CreateRelation | CreateAs, session: Session) -> str:
    """Return what definitions call a new relation.

    Raises:
        StatementUnsupported: another one is called so already.
    """
    found = definition_name(name, statement.name)
    other = next((each.name for each in session.relations.values() if each.definition_name == found and each.name != name), None)
    if other is not None:
        detail = f"{name} and {other} would be one relation here: names are told apart by their letters and digits, whatever their case"
        raise StatementUnsupported("name_not_supported", detail, statement.name)
    return found

"""From a statement to what is to be done: the one place where names, keys and types of statements are judged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from engine.sql import statement_tree as tree
from engine.sql.statement_tree import Statement
from engine.statements.actions import Action, Look
from engine.statements.commands import bind_alter, bind_control, bind_create_type, bind_define, bind_drop, bind_refused, bind_set
from engine.statements.context.faults import StatementUnsupported
from engine.statements.context.session import Session
from engine.statements.functions import bind_create_function
from engine.statements.inserts.insert_queries import bind_insert_query
from engine.statements.inserts.inserting import bind_insert_values
from engine.statements.queries.queries import bind_create_as
from engine.statements.sources.sources import bind_source


def bind(statement: Statement, session: Session) -> Action:
    """Return what a statement asks for.

    Raises:
        StatementRefused: the statement is wrong.
        StatementUnsupported: it is right, but cannot be had here.
    """
    binder = _BINDERS.get(type(statement))
    if binder is None:
        raise StatementUnsupported("not_supported_yet", f"{type(statement).__name__} is not supported", statement)
    return binder(statement, session)


def _look(statement: Statement, session: Session) -> Action:
    del session
    return Look(statement)


_BINDERS: Final[dict[type[Statement], Callable[[Any, Session], Action]]] = {
    tree.CreateRelation: bind_source,
    tree.CreateAs: bind_create_as,
    tree.InsertQuery: bind_insert_query,
    tree.InsertValues: bind_insert_values,
    tree.Drop: bind_drop,
    tree.CreateType: bind_create_type,
    tree.CreateFunction: bind_create_function,
    tree.Control: bind_control,
    tree.AlterAdd: bind_alter,
    tree.SetProperty: bind_set,
    tree.Define: bind_define,
    tree.Refused: bind_refused,
    **dict.fromkeys(
        (
            tree.Select, tree.Show, tree.Describe, tree.Explain, tree.ExplainWhy, tree.Print, tree.AssertTopic, tree.AssertValues,
            tree.AssertRelation,
        ),
        _look,
    ),
}  # fmt: skip

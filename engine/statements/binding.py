"""From a statement to what is to be done: the one place where names, keys and types of statements are judged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from engine.sql.statement_tree import Statement
from engine.statements.actions import Action
from engine.statements.faults import StatementUnsupported
from engine.statements.session import Session


def bind(statement: Statement, session: Session) -> Action:
    """Return what a statement asks for.

    Args:
        statement: as it was parsed.
        session: what is known before it.

    Raises:
        StatementRefused: the statement is wrong.
        StatementUnsupported: it is right, but cannot be had here.
    """
    binder = _BINDERS.get(type(statement))
    if binder is None:
        raise StatementUnsupported("not_supported_yet", f"{type(statement).__name__} is not supported", statement)
    return binder(statement, session)


_BINDERS: Final[dict[type[Statement], Callable[[Any, Session], Action]]] = {}

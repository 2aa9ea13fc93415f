"""Registered functions in Python, and their copies in definitions."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa

from app.access.rules import actor
from app.db.tables import python_function
from app.errors.app_errors import Fault, Unprocessable
from engine.definition.queries import QueryDefinition
from engine.expressions.aggregates.aggregates import AGGREGATE_NAMES
from engine.expressions.library.function_list import FUNCTIONS, KSQLDB
from engine.expressions.python_functions import FunctionDefinition, Functions
from engine.expressions.syntax import parse
from engine.expressions.values.operands import ExpressionInvalid
from engine.sql.tree import Call

BUILT_IN = frozenset({*FUNCTIONS, *(name.lower() for name in KSQLDB), *AGGREGATE_NAMES})


def registered_functions(connection: sa.Connection) -> Functions:
    rows = connection.execute(sa.select(python_function.c.name, python_function.c.definition))
    return {name: FunctionDefinition.model_validate(definition) for name, definition in rows}


def register_function(connection: sa.Connection, name: str, definition: FunctionDefinition) -> None:
    """Register a function, or replace the one with its name; definitions keep their copies."""
    connection.execute(sa.delete(python_function).where(python_function.c.name == name))
    stored = definition.model_dump(mode="json")
    connection.execute(sa.insert(python_function).values(name=name, definition=stored, created_by=actor()))


def drop_function(connection: sa.Connection, name: str) -> None:
    """Remove a function; definitions keep their copies."""
    connection.execute(sa.delete(python_function).where(python_function.c.name == name))


def with_functions(connection: sa.Connection, definition: QueryDefinition, before: Functions | None = None) -> QueryDefinition:
    """Return a definition with copies of the functions that its expressions call.

    Args:
        connection: to the database.
        definition: of the request. Its functions must equal the registered ones, or those that it had before.
        before: functions of the definition that it replaces.

    Raises:
        Unprocessable: ``function_differs``.
    """
    called = set(_called(definition))
    if not called and not definition.functions:
        return definition
    registered = registered_functions(connection)
    for name, function in definition.functions.items():
        if function not in (registered.get(name), (before or {}).get(name)):
            detail = f"{name} is not the function that is registered; leave `functions` out, or let an administrator CREATE FUNCTION it"
            raise Unprocessable("function_differs", detail, [Fault(f"/functions/{name}", "function_differs", detail)])
    chosen = {**{name: registered[name] for name in called if name in registered}, **definition.functions}
    return definition.model_copy(update={"functions": {name: each for name, each in sorted(chosen.items()) if name in called}})


def _called(definition: QueryDefinition) -> Iterator[str]:
    for text in definition.expressions:
        try:
            tree = parse(text)
        except ExpressionInvalid:
            continue  # the validation of the definition reports the fault
        names = (node.name.text.lower() for node in tree.walk() if isinstance(node, Call))
        yield from (name for name in names if name not in BUILT_IN)

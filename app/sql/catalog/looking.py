"""SHOW and DESCRIBE, answered from a session and the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import sqlalchemy as sa

from app.access.scopes import is_internal
from app.access.scopes_sql import query_is_visible
from app.db.tables import query, query_status
from engine.expressions.aggregates.aggregates import AGGREGATES
from engine.expressions.library.function_list import FUNCTIONS
from engine.expressions.suggestions import meant
from engine.sql.statement_tree import Describe, Show
from engine.statements.context.faults import StatementRefused
from engine.statements.context.session import Session, SqlRelation


@dataclass(frozen=True, slots=True)
class Listing:
    """Columns and rows.

    Attributes:
        columns: name and type, in order.
        rows: a JSON value for each column.
    """

    columns: tuple[tuple[str, str], ...]
    rows: Sequence[tuple[Any, ...]] = field(default_factory=tuple)


def texts(*names: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, "string") for name in names)


_RELATIONS: Final = texts("name", "kind", "topic", "key_format", "value_format", "window", "written_by")


def show(connection: sa.Connection, statement: Show, session: Session) -> Listing:
    """Answer SHOW.

    Raises:
        StatementRefused: ``not_supported``, for lists that this service does not have.
    """
    build = _LISTS.get(statement.what)
    if build is None:
        words = statement.what.replace("_", " ").upper()
        raise StatementRefused(
            "not_supported", f"there are no {words} here: sources and results are in the built-in log", statement
        )
    return build(connection, session)


def _relations(kind: str) -> Callable[[sa.Connection, Session], Listing]:
    def list_relations(_connection: sa.Connection, session: Session) -> Listing:
        relations = sorted((each for each in session.relations.values() if each.kind == kind), key=lambda each: each.name)
        return Listing(_RELATIONS, [_shown(each) for each in relations])

    return list_relations


def _shown(relation: SqlRelation) -> tuple[str | None, ...]:
    topic = relation.topic
    window = None if relation.window is None else relation.window.type
    formats = topic.key_format.name if relation.key else "NONE", topic.value_format.name
    return relation.name, relation.kind, topic.name, *formats, window, ", ".join(relation.writers) or None


def _topics(_connection: sa.Connection, session: Session) -> Listing:
    topics: dict[str, list[SqlRelation]] = {}
    for each in sorted(session.relations.values(), key=lambda one: one.name):
        topics.setdefault(each.topic.name, []).append(each)
    columns = (*texts("name", "relations"), ("partitions", "int"))
    return Listing(
        columns,
        [
            (name, ", ".join(one.name for one in relations), relations[0].topic.partitions)
            for name, relations in sorted(topics.items())
        ],
    )


def _queries(connection: sa.Connection, session: Session) -> Listing:
    statement = (
        sa.select(query.c.name, query_status.c.state, query.c.desired_state, query.c.statement)
        .join_from(query, query_status)
        .where(query.c.deleted_at.is_(None), query_is_visible())
        .order_by(query.c.name)
    )
    queries = [each for each in connection.execute(statement) if not is_internal(each.name)]
    columns = texts("id", "writes", "state", "desired_state", "statement")
    return Listing(
        columns, [(each.name, session.queries.get(each.name), each.state, each.desired_state, each.statement) for each in queries]
    )


def _functions(_connection: sa.Connection, _session: Session) -> Listing:
    return Listing(texts("name", "type", "description"), sorted(_known_functions()))


def _known_functions() -> Iterator[tuple[str, str, str]]:
    for each in FUNCTIONS.values():
        yield from ((name, "scalar", each.doc) for name in each.ksqldb)
    for entry in AGGREGATES.values():
        yield from ((name, "aggregate", entry.doc) for name in entry.ksqldb)


def _properties(_connection: sa.Connection, session: Session) -> Listing:
    values = {"sql.default_grace": session.settings.default_grace, **session.settings.values}
    return Listing(texts("name", "value"), sorted(values.items()))


def _types(_connection: sa.Connection, session: Session) -> Listing:
    return Listing(texts("name", "type"), [(name, str(kind)) for name, kind in sorted(session.types.items())])


def _variables(_connection: sa.Connection, session: Session) -> Listing:
    return Listing(texts("name", "value"), sorted(session.variables.items()))


_LISTS: Final[dict[str, Callable[[sa.Connection, Session], Listing]]] = {
    "streams": _relations("stream"),
    "tables": _relations("table"),
    "topics": _topics,
    "queries": _queries,
    "functions": _functions,
    "properties": _properties,
    "types": _types,
    "variables": _variables,
}


def describe(statement: Describe, session: Session) -> Listing:
    """Answer DESCRIBE of relations and functions.

    Raises:
        StatementRefused: ``unknown_relation``, ``unknown_function``.
    """
    if statement.what == "function":
        return _function(statement)
    if statement.what != "relation":
        kind = statement.what.removesuffix("s")
        relations = sorted((each for each in session.relations.values() if each.kind == kind), key=lambda each: each.name)
        columns = (*texts("relation"), *_COLUMNS)
        return Listing(columns, [(each.name, *row) for each in relations for row in _columns(each)])
    return Listing(_COLUMNS, list(_columns(relation_of(statement, session))))


_COLUMNS: Final = texts("column", "type", "role")


def _columns(relation: SqlRelation) -> Iterator[tuple[str, str, str]]:
    key = "primary key" if relation.kind == "table" else "key"
    for name, kind in relation.columns.items():
        role = key if name in relation.key else "value"
        yield name, str(kind), role
    if relation.window is not None:
        yield from ((name, "bigint", "window bound") for name in ("WINDOWSTART", "WINDOWEND"))


def relation_of(statement: Describe, session: Session) -> SqlRelation:
    name = statement.name
    if name is None:
        raise TypeError("DESCRIBE of a relation names it")
    folded = name.text if name.is_quoted else name.text.upper()
    relation = session.relation(folded)
    if relation is None:
        near = meant(folded, session.relations)
        ending = "SHOW STREAMS and SHOW TABLES list all" if near is None else f"did you mean {near}?"
        raise StatementRefused("unknown_relation", f"there is no stream or table {folded}; {ending}", name)
    return relation


def _function(statement: Describe) -> Listing:
    name = "" if statement.name is None else statement.name.text.upper()
    columns = texts("name", "type", "arguments", "result", "description")
    scalars = [each for each in FUNCTIONS.values() if name in (*each.ksqldb, each.name.upper())]
    aggregates = [each for each in AGGREGATES.values() if name in (*each.ksqldb, each.name.upper())]
    rows = [(name, "scalar", each.takes, each.result, each.doc) for each in scalars]
    rows += [(name, "aggregate", each.takes, each.result, each.doc) for each in aggregates]
    if not rows:
        near = meant(name, sorted({known for known, _, _ in _known_functions()}))
        ending = "SHOW FUNCTIONS lists all" if near is None else f"did you mean {near}?"
        raise StatementRefused("unknown_function", f"there is no function {name}; {ending}", statement.name)
    return Listing(columns, rows)

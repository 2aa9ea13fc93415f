"""Statements that only read, except SELECT with EMIT: SHOW, DESCRIBE, EXPLAIN, PRINT, ASSERT TOPIC, and pull queries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import sqlalchemy as sa
from anyio import to_thread

from app.catalog.queries.plans import get_planned
from app.catalog.stored.queries import query_not_found
from app.db.page_bounds import Most
from app.explain.answers import answer_why
from app.http.parameters import Services, planned
from app.http.values import shown
from app.lateness.records import LateFilter, PageOf, late_records_of
from app.sql.answers import Listed, Outcome, Selected
from app.sql.catalog.looking import Listing, describe, show, texts
from app.sql.reads.printing import printed, relations_on
from app.sql.reads.pulls import RowReader, pull, reads_too_long
from engine.sql.scripts import Parsed
from engine.sql.statement_tree import AssertTopic, Describe, Explain, ExplainWhy, Print, Select, Show, Statement
from engine.sql.tree import Identifier, Text
from engine.statements.actions import Action
from engine.statements.binding import bind
from engine.statements.context.faults import StatementRefused, StatementUnsupported
from engine.statements.context.naming import definition_name, folded
from engine.statements.context.session import Session
from engine.statements.reads.reading import beginning_of, followed_by
from engine.statements.reads.scans import pull_of
from engine.statements.reads.transient import transient_of

Found = TypeVar("Found")
PAGE = 100
"""Rows of a list without LIMIT."""


async def look(services: Services, parsed: Parsed, session: Session, until: float) -> Outcome:
    """Answer a statement that only reads.

    Raises:
        AppError: it names something that does not exist, cannot be answered, or took too long.
        StatementFault: it cannot be bound.
        DefinitionInvalid: it explains a wrong definition.
    """
    if asyncio.get_running_loop().time() >= until:
        raise reads_too_long(services)
    match parsed.tree:
        case Select(emit=None):
            read = await planned(services, partial(pull_of, parsed.tree, session))
            return Selected(parsed, await pull(services, read, until))
        case Print():
            return Listed(parsed, await printed(services, parsed.tree, session))
        case _:
            return Listed(parsed, await _inspecting(services, partial(_listing, services, parsed.tree, session)))


def check_looking(tree: Statement, session: Session) -> str:
    """Check a reading statement without a read; return what it would do.

    Raises:
        AppError: it names a query that does not exist.
        StatementFault: it cannot be bound.
    """
    match tree:
        case Select(emit=None):
            read = pull_of(tree, session)
            return f"would read {read.relation.kind} {read.relation.name}"
        case Select():
            followed = followed_by(tree, session)
            if followed is None:
                transient_of(tree, session, beginning_of(session))
                return "would show rows as a query of its own makes them"
            RowReader(followed)
            return f"would follow {followed.relation.kind} {followed.relation.name}"
        case Describe():
            describe(tree, session)
        case Print():
            relations_on(tree, session)
        case Explain(what=Identifier() as name) | ExplainWhy(query=name) | Show(what="late_records", of=Identifier() as name):
            _query_of(name, session)
        case Explain(what=Statement() as statement):
            bind(statement, session)
    return "would be answered"


async def _inspecting(services: Services, work: Callable[[sa.Connection], Found]) -> Found:
    def working() -> Found:
        with services.database.inspection.begin() as connection:
            return work(connection)

    async with services.database.inspection_turns.taken(is_long=True):
        return await to_thread.run_sync(working)


def _listing(services: Services, tree: Statement, session: Session, connection: sa.Connection) -> Listing:
    match tree:
        case Show(what="late_records"):
            return _late_records(connection, tree, services.settings.limits.page_bytes, session)
        case Show():
            return show(connection, tree, session)
        case Describe():
            return describe(tree, session)
        case Explain(what=Identifier() as name):
            return _explained_query(connection, name, session)
        case Explain(what=Statement() as statement):
            return _explained(bind(statement, session))
        case ExplainWhy():
            return _why(connection, tree, session)
        case AssertTopic():
            return _topic_asserted(tree, session)
    raise StatementUnsupported("not_supported", f"{type(tree).__name__} cannot be answered here", tree)


def _query_of(name: Identifier, session: Session) -> str:
    """Return the query that a statement names. Queries that the caller may not see are not in the session."""
    name_of_query = definition_name(folded(name), name)
    if name_of_query not in session.queries:
        raise query_not_found(name_of_query)
    return name_of_query


def _explained_query(connection: sa.Connection, name: Identifier, session: Session) -> Listing:
    query = get_planned(connection, _query_of(name, session))
    rows = [
        ("query", query.row.name),
        ("state", query.row.state),
        ("definition", json.dumps(query.row.definition)),
        *((f"stage {stage.index}", ", ".join(type(each).__name__ for each in stage.operators)) for stage in query.plan.stages),
    ]
    return Listing(texts("what", "value"), rows)


def _explained(action: Action) -> Listing:
    plan = getattr(action, "plan", None)
    definition = getattr(action, "definition", None)
    rows: list[tuple[str, str]] = [("action", type(action).__name__)]
    if definition is not None:
        rows.append(("definition", definition.model_dump_json(by_alias=True)))
    if plan is not None:
        rows += [(f"stage {stage.index}", ", ".join(type(each).__name__ for each in stage.operators)) for stage in plan.stages]
    return Listing(texts("what", "value"), rows)


def _why(connection: sa.Connection, tree: ExplainWhy, session: Session) -> Listing:
    name = _query_of(tree.query, session)
    key = [_literal(each) for each in tree.key]
    at = None if tree.at is None else _literal(tree.at)
    answer = answer_why(connection, name, key, at)
    rows = [(step.code, step.operator, step.sentence) for step in (answer.answer, *answer.steps)]
    return Listing(texts("code", "operator", "sentence"), rows)


def _literal(node: object) -> str:
    match node:
        case Text(value=value):
            return value
    text = getattr(node, "text", None)
    if not isinstance(text, str):
        raise StatementRefused(
            "literal_needed", "write a key and a time as literals, as in KEY ('JFK') AT '2013-01-01T12:00:00Z'"
        )
    return text


def _late_records(connection: sa.Connection, tree: Show, page_bytes: int, session: Session) -> Listing:
    if tree.of is None:
        raise TypeError("SHOW LATE RECORDS names a query")
    query = get_planned(connection, _query_of(tree.of, session))
    limit = PAGE if tree.limit is None else int(tree.limit)
    rows = late_records_of(connection, query.row.id, LateFilter(), PageOf(Most(limit, page_bytes)))
    columns = (*texts("input", "reason", "event_time"), ("event_time_ms", "bigint"), *texts("record"))
    return Listing(columns, [(row.input, row.reason, shown(row.event_time_ms), row.event_time_ms, row.record) for row in rows])


def _topic_asserted(tree: AssertTopic, session: Session) -> Listing:
    name = folded(tree.topic) if isinstance(tree.topic, Identifier) else tree.topic.value
    is_there = any(name in (each.topic.name, each.topic.name.upper()) for each in session.relations.values())
    if is_there == tree.is_missing:
        state = "there is a topic" if is_there else "there is no topic"
        raise StatementRefused("assertion_failed", f"{state} {name}", tree)
    return Listing(texts("topic", "exists"), [(name, "yes" if is_there else "no")])

"""From a bound query to its definition and its plan, whatever it writes."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from engine.definition.problems import problems_of
from engine.definition.queries import QueryDefinition
from engine.definition.start import StartAt
from engine.errors import DefinitionInvalid, Problem
from engine.expressions.syntax import parse
from engine.expressions.types.types import Schema
from engine.plan.build import build_plan, faults_of_new
from engine.plan.model import Plan
from engine.sql.statement_tree import CreateAs, InsertQuery
from engine.sql.tree import Node
from engine.statements.context.faults import StatementFault, StatementRefused, StatementUnsupported, together
from engine.statements.context.naming import definition_name
from engine.statements.context.properties import Properties
from engine.statements.context.session import WINDOW_BOUNDS, KeyWindow, Session, Topic
from engine.statements.functions import functions_called
from engine.statements.queries.clause_properties import INTO_CONNECTOR, connector_of, take_properties
from engine.statements.queries.free_form import free_select_of
from engine.statements.queries.selecting import Selected, select_of
from engine.statements.sources.event_times import strptime_of

_BEYOND = frozenset({"not_supported_yet", "unsupported_option", "start_needs_stream"})
"""Codes of what the language has and the engine has not."""


def selected_of(statement: CreateAs | InsertQuery, session: Session, properties: Properties, sink: str) -> Selected:
    """Bind the query: by ksqlDB's rules, unless it says its dialect."""
    dialect = properties.one_of("DIALECT", ("KSQLDB", "STANDARD"))
    if dialect is None:
        found = select_of(statement.query, session, sink)
    else:
        found = free_select_of(statement.query, session, properties, "standard" if dialect == "STANDARD" else "ksqldb")
    take_properties(found, properties)
    return found


def _with_functions(definition: QueryDefinition, session: Session) -> QueryDefinition:
    """Return a definition with copies of the functions in Python that it calls."""
    if not session.functions:
        return definition
    return definition.model_copy(update={"functions": functions_called(map(parse, definition.expressions), session.functions)})


def target_of(properties: Properties, selected: Selected | None) -> dict[str, Any]:
    """Return where the results are delivered to, as fields of ``into``."""
    connector = connector_of(properties)
    if connector is None:
        return {}
    if selected is not None and (node := properties.node(INTO_CONNECTOR)) is not None:
        selected.places["/into/connector"] = node
    return {"connector": connector}


def query_name(properties: Properties, default: str, session: Session, replaced: str | None = None) -> str:
    """Return what a new query is called, or the query whose place it takes (``replaced``)."""
    given, node = properties.text("QUERY_ID"), properties.node("QUERY_ID")
    name = replaced or free_name(default, session)
    if given is None:
        return name
    with properties.faults.part():
        name = definition_name(given, node)
        if name in session.queries and name != replaced:
            raise StatementRefused("query_exists", f"there is a query {given} already: choose another QUERY_ID", node)
    return name


def free_name(name: str, session: Session) -> str:
    found, number = name, 1
    while found in session.queries:
        number += 1
        found = f"{name[:58]}_{number}"
    return found


def planned(
    selected: Selected,
    name: str,
    into: dict[str, Any],
    running: dict[str, Any],
    session: Session,
    statement: Node,
) -> tuple[QueryDefinition, Plan]:
    """Make the definition and plan it; faults of either are the statement's.

    Args:
        selected: the query.
        name: of it.
        into: what it writes; the key is added.
        running: see ``running_of``.
        session: with the relations that it reads.
        statement: where faults are that no part of the query has.
    """
    body = {"name": name, **selected.body, "into": into, **running}
    if selected.is_free:
        into |= {} if selected.key_given is None else {"key": selected.key_given}
    elif selected.is_rekeyed or (selected.kind == "stream" and not selected.key):
        into["key"] = [*selected.key, *(WINDOW_BOUNDS if selected.window is not None else ())]
    if selected.window is not None and selected.kind == "stream" and not selected.is_free:
        into.setdefault("key", [*selected.key, *WINDOW_BOUNDS])
    try:
        definition = _with_functions(QueryDefinition.model_validate(body), session)
        entries = {relation.definition_name: relation.entry for relation in session.relations.values()}
        if problems := list(faults_of_new(definition)):
            raise DefinitionInvalid(problems)
        return definition, build_plan(definition, entries)
    except ValidationError as error:
        found = [
            StatementUnsupported(
                "definition_not_supported", f"{each.pointer}: {each.detail}", _place(each.pointer, selected, statement)
            )
            for each in problems_of(error, QueryDefinition)
        ]
        raise together(found) from error
    except DefinitionInvalid as error:
        raise together([_fault(each, selected, statement) for each in error.problems]) from error


def _take_shape(selected: Selected, definition: QueryDefinition, plan: Plan) -> None:
    """Take the key, the columns and the window of the result from its plan."""
    output, window = plan.output, definition.window
    if window is not None and output.is_windowed and output.key[-2:] == WINDOW_BOUNDS:
        selected.window = KeyWindow(window.type, window.size or window.difference)
    hidden = WINDOW_BOUNDS if selected.window is not None else ()
    selected.key = tuple(name for name in output.key if name not in hidden)
    selected.columns = tuple(name for name in output.columns.names if name not in hidden)


def _fault(problem: Problem, selected: Selected, statement: Node) -> StatementFault:
    """Return a problem of the definition as a fault of the statement, at the place that it comes from."""
    kind = StatementUnsupported if problem.code in _BEYOND else StatementRefused
    return kind(problem.code, problem.detail, _place(problem.pointer, selected, statement))


def _place(pointer: str, selected: Selected, statement: Node) -> Node:
    """Return what of the statement says the part of the definition that a pointer leads to."""
    while pointer and pointer not in selected.places:
        pointer = pointer.rpartition("/")[0]
    return selected.places.get(pointer, statement)


def running_of(properties: Properties, session: Session) -> dict[str, Any]:
    """Return what properties say of how the query runs, as fields of its definition."""
    body: dict[str, Any] = {}
    tasks = properties.whole("TASKS")
    if tasks is not None:
        body["tasks"] = tasks
    start = properties.text("START") or session.settings.values.get("auto.offset.reset")
    if start is not None and start.lower() in ("earliest", "latest"):
        body["start"] = start.lower()
    elif start is not None:
        try:
            body["start"] = StartAt.model_validate({"at": start}).model_dump(mode="json")
        except ValidationError:
            properties.malformed("START", f"START is EARLIEST, LATEST or a time such as '2013-01-01T00:00:00Z', not {start!r}")
    rows, kept_ms = properties.whole("LATE_RECORDS_MAX_ROWS"), properties.duration("LATE_RECORDS_RETENTION")
    if rows is not None or kept_ms is not None:
        late = {"max_rows": rows, "retention": None if kept_ms is None else f"{kept_ms}ms"}
        body["late_records"] = {name: value for name, value in late.items() if value is not None}
    wanted = properties.one_of("DESIRED_STATE", ("RUNNING", "PAUSED", "STOPPED"))
    if wanted is not None:
        body["desired_state"] = wanted.lower()
    return body


def event_time_of(topic: Topic, properties: Properties) -> dict[str, Any]:
    """Return what a topic says of the event time of what is written to it, as fields of ``into``."""
    form, node = properties.text("EVENT_TIME_FORMAT"), properties.node("TIMESTAMP_FORMAT")
    if topic.timestamp is None:
        return {}
    if form is None and topic.timestamp_format is not None:
        with properties.faults.part():
            form = strptime_of(topic.timestamp_format, node)
    return {"event_time": topic.timestamp, **({} if form is None else {"event_time_format": form})}


def columns_of(selected: Selected, definition: QueryDefinition, plan: Plan) -> Schema:
    """Return the result's columns, those of the key first."""
    if selected.is_free:
        _take_shape(selected, definition, plan)
    values = [name for name in selected.columns if name not in selected.key]
    return plan.output.columns.select((*selected.key, *values))

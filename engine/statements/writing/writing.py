"""A definition of a query as a statement that means the same: every field has a clause or a property.

What comes of it is in the free form (``engine.statements.queries.free_form``): bound again it gives a definition with the same plan.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from engine.definition.queries import Join, LateRecordsKept, QueryDefinition, Window
from engine.definition.start import StartAt
from engine.expressions.durations import UNITS_MS
from engine.expressions.syntax import parse
from engine.expressions.values.operands import ExpressionInvalid
from engine.plan.build import normalise
from engine.plan.catalog import Catalog
from engine.sql.printing.statements import show
from engine.sql.statement_tree import (
    BufferClause,
    CreateAs,
    Duration,
    EmitClause,
    HoldClause,
    JoinClause,
    Property,
    Relation,
    Select,
    SelectItem,
    WindowClause,
    Within,
)
from engine.sql.tree import (
    Binary,
    Boolean,
    Chain,
    Column,
    Field,
    FieldValue,
    Identifier,
    Lambda,
    Node,
    Number,
    Star,
    StructOf,
    Text,
)
from engine.statements.queries.clause_properties import INTO_CONNECTOR
from engine.statements.queries.free_form import AGGREGATE, FROM_WHERE
from engine.statements.queries.grouping import is_aggregate

_UNITS: Final = {"d": "DAYS", "h": "HOURS", "m": "MINUTES", "s": "SECONDS", "ms": "MILLISECONDS"}
_PLAIN = re.compile(r"[A-Z][A-Z0-9_]*")


def statement_of(definition: QueryDefinition, catalog: Catalog) -> str:
    """Return a definition as a statement.

    Args:
        definition: one that can be planned.
        catalog: the relations that it reads; asked for the keys of joins without ``on``.
    """
    definition = normalise(definition)
    into = definition.into
    versioned = None if into.versioned is None else duration(into.versioned.history_retention)
    return show(
        CreateAs(
            "stream" if into.table is None else "table",
            relation_name(into.relation),
            _query(definition, catalog),
            versioned,
            tuple(_properties(definition)),
        )
    )


def duration(ms: int) -> Duration:
    """Return a duration in the largest unit that divides it."""
    unit = next((unit for unit, size in UNITS_MS.items() if ms and ms % size == 0), "ms")
    return Duration(str(ms // UNITS_MS[unit]), _UNITS[unit])


def column_name(name: str) -> Identifier:
    """Return a column's name, in quotes: it is read as it is."""
    return Identifier(name, is_quoted=True)


def relation_name(name: str) -> Identifier:
    """Return a relation's name, or an alias, as statements have it."""
    return Identifier(name.upper(), is_quoted=True)


def prop(name: str, value: str | int | bool) -> Property:
    match value:
        case bool():
            node: Node = Boolean(value)
        case int():
            node = Number(str(value))
        case _:
            node = Text(value)
    return Property(Identifier(name) if _PLAIN.fullmatch(name) else Text(name), node)


def written_duration(ms: int) -> str:
    """Return a duration as properties write it."""
    found = duration(ms)
    return f"{found.amount} {found.unit}"


def _properties(definition: QueryDefinition) -> Iterator[Property]:
    yield prop("DIALECT", definition.dialect.upper())
    into = definition.into
    if definition.name != into.relation:
        yield prop("QUERY_ID", definition.name)
    if into.key is not None:
        yield prop("KEY", json.dumps(list(into.key), ensure_ascii=False))
    if into.event_time is not None:
        yield prop("TIMESTAMP", '"' + into.event_time + '"')
    if into.event_time_format is not None:
        yield prop("EVENT_TIME_FORMAT", into.event_time_format)
    if into.append_to is not None:
        yield prop("APPEND_TO", into.append_to)
    if into.retention is not None:
        yield prop("LOG_RETENTION", written_duration(into.retention))
    if into.connector is not None:
        said = {"type": into.connector.name()} | into.connector.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        yield prop(INTO_CONNECTOR, json.dumps(said, ensure_ascii=False))
    if into.materialize_open and definition.suppress.mode != "until_window_closes":
        yield prop("MATERIALIZE_OPEN", value=True)
    if definition.source.where is not None:
        yield prop(FROM_WHERE, definition.source.where)
    if not _shows_aggregates(definition):
        yield from (prop(AGGREGATE + name, text) for name, text in definition.aggregate.items())
    if definition.tasks is not None:
        yield prop("TASKS", definition.tasks)
    if definition.start != "earliest":
        start = definition.start
        yield prop("START", start.at.isoformat() if isinstance(start, StartAt) else start.upper())
    if definition.desired_state != "running":
        yield prop("DESIRED_STATE", definition.desired_state.upper())
    late = definition.late_records
    if late != LateRecordsKept():
        yield prop("LATE_RECORDS_MAX_ROWS", late.max_rows)
        yield prop("LATE_RECORDS_RETENTION", written_duration(late.retention))


def _query(definition: QueryDefinition, catalog: Catalog) -> Select:
    source = definition.source
    return Select(
        tuple(_items(definition)),
        Relation(relation_name(source.relation), relation_name(source.alias or source.relation)),
        tuple(_join(definition, join, catalog) for join in definition.joins),
        None if definition.window is None else _window(definition.window),
        _expression(definition.where),
        tuple(_written(text) for text in definition.group_by),
        (),
        _expression(definition.having),
        _emit(definition),
    )


def _shows_aggregates(definition: QueryDefinition) -> bool:
    """Whether each aggregate is a column of the result, under its own name and in its order."""
    if definition.select is None:
        return True
    shown = [name for name, text in definition.select.items() if name in definition.aggregate and _is_column(text, name)]
    return shown == list(definition.aggregate)


def _is_column(text: str, name: str) -> bool:
    tree = _parsed(text).bare
    return isinstance(tree, Column) and tree.table is None and tree.name.text == name


def _items(definition: QueryDefinition) -> Iterator[SelectItem]:
    aggregates = definition.aggregate if _shows_aggregates(definition) else {}
    if definition.select is None:
        yield SelectItem(Star())
        yield from (SelectItem(_written(text), column_name(name)) for name, text in aggregates.items())
        return
    for name, text in definition.select.items():
        is_call = name in aggregates and is_aggregate(_parsed(aggregates[name]).bare)
        yield SelectItem(_written(aggregates[name] if is_call else text), column_name(name))


def _join(definition: QueryDefinition, join: Join, catalog: Catalog) -> JoinClause:
    alias = join.alias or join.relation
    within, grace = None, join.grace
    unmatched = None
    if join.within is not None:
        within, grace = Within(duration(join.within.before), duration(join.within.after)), join.within.grace
        unmatched = None if join.within.unmatched == "when_closed" else join.within.unmatched
    hold = None
    if join.hold is not None:
        slack = None if join.hold.slack == 0 else duration(join.hold.slack)
        hold = HoldClause(join.hold.until, duration(join.hold.at_most), slack, str(join.hold.max_rows))
    return JoinClause(
        join.type,
        Relation(relation_name(join.relation), relation_name(alias)),
        within,
        None if grace is None else duration(grace),
        join.unversioned_ok,
        None if join.late == "join" else join.late,
        None if join.expired == "null" else join.expired,
        hold,
        None if join.history == "latest" else join.history,
        unmatched,
        _expression(join.on) or _by_name(definition, join, catalog),
    )


def _by_name(definition: QueryDefinition, join: Join, catalog: Catalog) -> Node:
    """Return what a join without ``on`` means: the key's columns by their names."""
    source = definition.source
    mine, theirs = relation_name(source.alias or source.relation), relation_name(join.alias or join.relation)
    key = catalog[join.relation].relation.key
    equal = [Binary("=", Column(column_name(name), mine), Column(column_name(name), theirs)) for name in key]
    return equal[0] if len(equal) == 1 else Chain("AND", tuple(equal))


def _window(window: Window) -> WindowClause:
    length = next(each for each in (window.size, window.difference, window.gap) if each is not None)
    return WindowClause(
        window.type,
        duration(length),
        None if window.advance is None else duration(window.advance),
        None if window.retention is None else duration(window.retention),
        duration(window.grace),
    )


def _emit(definition: QueryDefinition) -> EmitClause | None:
    emit = _shown_when(definition)
    idle = None if definition.idle is None else duration(definition.idle.after)
    clock = None if definition.clock == "fastest" else definition.clock
    if idle is None and clock is None:
        return emit
    return replace(emit or EmitClause("changes"), idle_after=idle, clock=clock)


def _shown_when(definition: QueryDefinition) -> EmitClause | None:
    suppress = definition.suppress
    limit = None if suppress.limit is None else duration(suppress.limit)
    buffer = None
    if suppress.buffer is not None:
        rows, size = suppress.buffer.max_rows, suppress.buffer.max_bytes
        buffer = BufferClause(None if rows is None else str(rows), None if size is None else str(size), suppress.buffer.when_full)
    match suppress.mode:
        case "until_window_closes":
            return EmitClause("final", definition.into.materialize_open)
        case "window_end_then_corrections":
            return EmitClause("window_end")
        case "until_wall_clock_time_limit":
            return EmitClause("changes", every=limit, is_event_driven=suppress.event_driven, buffer=buffer)
        case "until_time_limit":
            return EmitClause("changes", wait=limit, buffer=buffer)
    return None


def _expression(text: str | None) -> Node | None:
    return None if text is None else _written(text)


def _parsed(text: str) -> Node:
    try:
        return parse(text)
    except ExpressionInvalid as error:
        raise ValueError(f"{text!r} cannot be parsed, so the definition cannot be planned") from error


def _written(text: str) -> Node:
    """Return an expression of a definition as statements write it: names in quotes, aliases as the inputs have them."""
    return _parsed(text).mapped(_quoted)


def _quoted(node: Node) -> Node | None:
    match node:
        case Column(name=name, table=table):
            return Column(column_name(name.text), None if table is None else relation_name(table.text))
        case Field(operand=operand, name=name):
            return Field(operand.mapped(_quoted), column_name(name.text))
        case StructOf(fields=fields):
            return StructOf(tuple(FieldValue(column_name(each.name.text), each.value.mapped(_quoted)) for each in fields))
        case Lambda(parameters=parameters, body=body):
            return Lambda(tuple(column_name(each.text) for each in parameters), body.mapped(_quoted))
    return None

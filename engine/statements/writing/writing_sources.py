"""A source's definition as a statement that means the same: every field has a clause or a property."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Literal

from pydantic import BaseModel

from engine.definition.relations import SourceDefinition, TableDefinition
from engine.sql.printing.statements import show
from engine.sql.statement_tree import ColumnDefinition, CreateRelation, Property
from engine.statements.context.naming import SYSTEM_COLUMNS
from engine.statements.context.type_names import type_name
from engine.statements.sources.event_times import RFC_3339
from engine.statements.writing.writing import column_name, duration, prop, relation_name, written_duration


def source_statement_of(name: str, definition: SourceDefinition) -> str:
    """Return a source as a statement."""
    is_table = isinstance(definition, TableDefinition)
    role: Literal["key", "primary_key"] = "primary_key" if is_table else "key"
    columns = tuple(
        ColumnDefinition(column_name(each), type_name(kind), role if each in definition.key else "value")
        for each, kind in definition.schema_.items()
    )
    versioned = definition.versioned if isinstance(definition, TableDefinition) else None
    return show(
        CreateRelation(
            "table" if is_table else "stream",
            relation_name(name),
            columns,
            None if versioned is None else duration(versioned.history_retention),
            tuple(
                {
                    each.name: each for each in (prop("KAFKA_TOPIC", name), prop("FORMAT", "JSON"), *_properties(definition))
                }.values()
            ),
            is_read_only=definition.read_only,
        )
    )


def _properties(definition: SourceDefinition) -> Iterator[Property]:
    if not SYSTEM_COLUMNS.isdisjoint(definition.columns):
        yield prop("DIALECT", "STANDARD")
    if list(definition.key) != [name for name in definition.columns if name in definition.key]:
        yield prop("KEY", json.dumps(list(definition.key), ensure_ascii=False))
    if definition.event_time is not None:
        yield prop("TIMESTAMP", '"' + definition.event_time + '"')
        if definition.schema_[definition.event_time].kind == "string":
            yield prop("EVENT_TIME_FORMAT", definition.event_time_format or RFC_3339)
    if definition.event_time_unit is not None:
        yield prop("EVENT_TIME_UNIT", definition.event_time_unit)
    yield from _connector(definition)
    skew_ms = definition.max_future_skew
    yield prop("MAX_FUTURE_SKEW", "NONE" if skew_ms is None else written_duration(skew_ms))
    if definition.on_bad_record != "reject":
        yield prop("ON_BAD_RECORD", definition.on_bad_record.upper())
    if isinstance(definition, TableDefinition):
        if definition.materialize != definition.read_only:  # the rows of a SOURCE TABLE are kept
            yield prop("MATERIALIZE", value=definition.materialize)
        if definition.conflict != "latest_arrival":
            yield prop("CONFLICT", definition.conflict.upper())


def _connector(definition: SourceDefinition) -> Iterator[Property]:
    connector = definition.connector
    if connector.where is not None:
        yield prop("FEED_WHERE", connector.where)
    for clause in connector.clauses:
        value = getattr(connector, clause.field)
        if value is None:
            continue
        match clause.form:
            case "text" | "number":
                yield prop(clause.name, value)
            case "json":
                said = (
                    value.model_dump(mode="json", by_alias=True, exclude_defaults=True) if isinstance(value, BaseModel) else value
                )
                yield prop(clause.name, json.dumps(said, ensure_ascii=False))
            case "word":
                yield prop(clause.name, value.upper())
            case "duration":
                yield prop(clause.name, written_duration(value))

"""Which connector a source has, and what its properties say of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from engine.definition.sources.connector import Clause, ConnectorModel, TopicWords
from engine.definition.sources.connector_list import DEFAULT, MODELS
from engine.sql.statement_tree import ColumnDefinition
from engine.statements.context.faults import StatementRefused, StatementUnsupported
from engine.statements.context.properties import Properties

RECORD_COLUMNS: Final = "record_columns"
"""Field of connectors whose records have headers."""


def connector_of(properties: Properties, words: TopicWords, headers: Mapping[str, ColumnDefinition]) -> dict[str, Any]:
    """Return what is said of the connector: that of a property which stands for it, else the default one."""
    given = {name: {clause.field: _clause(clause, properties) for clause in model.clauses} for name, model in MODELS.items()}
    where = properties.text("FEED_WHERE")
    chosen = chosen_connector(properties)
    _refuse_others(chosen, properties)
    said = {field: value for field, value in {**given[chosen], "where": where}.items() if value is not None}
    if headers:
        said[RECORD_COLUMNS] = _with_headers(chosen, said.get(RECORD_COLUMNS, {}), headers, properties)
    if chosen == DEFAULT.name():
        return {"connector": {"type": chosen, **said}} if said else {}
    defaults = {clause.field: clause.default.lower() for clause in MODELS[chosen].clauses if clause.default is not None}
    return {"connector": {"type": chosen, **defaults, **MODELS[chosen].said_by_topic(words), **said}}


def _with_headers(chosen: str, said: Any, headers: Mapping[str, ColumnDefinition], properties: Properties) -> Any:
    """Return what the connector says of columns that hold facts of a record, with those that hold a header."""
    for name, column in headers.items():
        if RECORD_COLUMNS not in MODELS[chosen].model_fields:
            detail = f"{name}: records of the connector {chosen!r} have no headers; those of a topic have (CONNECTION, BOOTSTRAP)"
            properties.faults.add(StatementUnsupported("headers_not_supported", detail, column))
            continue
        if isinstance(said, dict) and name in said:
            detail = f"RECORD_COLUMNS says it of {name}, too: leave one of both out"
            properties.faults.add(StatementRefused("property_clash", detail, column))
    if not isinstance(said, dict):
        return said  # the definition refuses it
    return {**said, **{name: f"header:{each.header.value}" for name, each in headers.items() if each.header is not None}}


def chosen_connector(properties: Properties) -> str:
    """Return the connector that a property stands for, else the default one."""
    return next((name for name, model in MODELS.items() if _is_chosen(model, properties)), DEFAULT.name())


def _is_chosen(model: type[ConnectorModel], properties: Properties) -> bool:
    return any(clause.is_choice and properties.has(clause.name) for clause in model.clauses)


def _refuse_others(chosen: str, properties: Properties) -> None:
    """Report what says nothing of the connector that is meant."""
    for name, model in MODELS.items():
        for clause in model.clauses:
            if name != chosen and not clause.is_of_topics and properties.has(clause.name):
                ways = [each.name for each in model.clauses if each.is_choice]
                meant = f", which {ways[0]} stands for" if ways else ""
                detail = f"{clause.name} is of the connector {name!r}{meant}; these records come by {chosen!r}: leave it out"
                properties.faults.add(StatementRefused("property_clash", detail, properties.node(clause.name)))


def _clause(clause: Clause, properties: Properties) -> Any:
    """Return what a property says, as its field has it; None where it is not there."""
    match clause.form:
        case "text":
            return properties.text(clause.name)
        case "number":
            return properties.whole(clause.name)
        case "word":
            word = properties.one_of(clause.name, clause.words)
            return None if word is None else word.lower()
        case "json":
            return _json(clause.name, properties)
        case "duration":
            length_ms = properties.duration(clause.name)
            return None if length_ms is None else f"{length_ms}ms"


def _json(name: str, properties: Properties) -> Any:
    written = properties.text(name)
    if written is None:
        return None
    try:
        return json.loads(written)
    except ValueError:
        properties.malformed(name, f"""{name} is a text of JSON, as a definition has it, such as {name}='{{"format": "json"}}'""")
        return None

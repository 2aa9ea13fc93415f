"""Answers of ``/ksql``: one object for each statement; ``@type`` says which kind it is. Types have the form of ksqlDB's protocol."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from app.sql.answers import Defined, Inserted, Listed, Outcome, Selected
from app.sql.catalog.looking import relation_of
from engine.expressions.types.types import ColumnType, Schema
from engine.sql.scripts import Parsed
from engine.sql.statement_tree import AlterAdd, Control, CreateAs, CreateRelation, CreateType, Describe, Drop, InsertQuery, Show
from engine.statements.context.session import Session, SqlRelation

_NAMES: Final = {"int": "INTEGER"}


def type_text(kind: ColumnType) -> str:
    """Return a type as text: ``DECIMAL(4, 2)``, ``STRUCT<`A` STRING>``."""
    match kind:
        case ColumnType(kind="decimal", precision=precision, scale=scale):
            return f"DECIMAL({precision}, {scale})"
        case ColumnType(kind="array", element=ColumnType() as element):
            return f"ARRAY<{type_text(element)}>"
        case ColumnType(kind="map", key=ColumnType() as key, value=ColumnType() as value):
            return f"MAP<{type_text(key)}, {type_text(value)}>"
        case ColumnType(kind="struct", fields=fields):
            return f"STRUCT<{', '.join(f'{quoted(name)} {type_text(field)}' for name, field in fields)}>"
    return _NAMES.get(kind.kind, kind.kind.upper())


def quoted(name: str) -> str:
    """Return a name in back quotes."""
    return "`" + name.replace("`", "``") + "`"


def schema_text(columns: Schema, key: Iterable[str] = ()) -> str:
    """Return columns as one text; those of the key have KEY after their type."""
    of_key = set(key)
    return ", ".join(f"{quoted(name)} {type_text(kind)}{' KEY' if name in of_key else ''}" for name, kind in columns.items())


def type_object(kind: ColumnType) -> dict[str, Any]:
    match kind:
        case ColumnType(kind="decimal", precision=precision, scale=scale):
            return _object("DECIMAL", parameters={"precision": precision, "scale": scale})
        case ColumnType(kind="array", element=ColumnType() as element):
            return _object("ARRAY", member=type_object(element))
        case ColumnType(kind="map", value=ColumnType() as value):
            return _object("MAP", member=type_object(value))
        case ColumnType(kind="struct", fields=fields):
            return _object("STRUCT", fields=[{"name": name, "schema": type_object(field)} for name, field in fields])
    return _object(_NAMES.get(kind.kind, kind.kind.upper()))


def _object(
    name: str,
    *,
    fields: list[dict[str, Any]] | None = None,
    member: dict[str, Any] | None = None,
    parameters: dict[str, Any] | None = None,
) -> dict[str, Any]:
    type_parameters = {} if parameters is None else {"parameters": parameters}
    return {"type": name, "fields": fields, "memberSchema": member, **type_parameters}


def field_objects(columns: Schema, key: Iterable[str]) -> list[dict[str, Any]]:
    of_key = set(key)
    return [
        {"name": name, "schema": type_object(kind), **({"type": "KEY"} if name in of_key else {})}
        for name, kind in columns.items()
    ]


Entity = dict[str, Any]
_DONE: Final = {CreateRelation: "create", CreateAs: "create", InsertQuery: "create", Drop: "drop", AlterAdd: "alter"}


def entities_of(outcome: Outcome, session: Session) -> list[Entity]:
    """Return the entities of a statement's outcome; none for INSERT ... VALUES."""
    parsed = outcome.parsed
    match outcome:
        case Inserted():
            return []
        case Defined():
            return [_done(outcome)]
        case Listed():
            return [{**_listed(outcome, session), **_common(parsed)}]
        case Selected():
            return []


def _common(parsed: Parsed) -> Entity:
    return {"statementText": f"{parsed.text};", "warnings": []}


def _done(outcome: Defined) -> Entity:
    done, tree = outcome.done, outcome.parsed.tree
    kind, verb = done.kind or "statement", _DONE.get(type(tree), "execute")
    name = quoted((done.relation or done.query or "").upper())
    if isinstance(tree, Control):
        kind, verb = "terminate", "execute"
    if isinstance(tree, CreateType):
        kind, verb, name = "type", "create", quoted(tree.name.text)
    notes = [{"@type": "warning_entity", "message": f"{each.detail}. {each.cure}"} for each in done.warnings]
    notes += [{"@type": "warning_entity", "message": each} for each in done.notes]
    return {
        "@type": "currentStatus",
        "statementText": f"{outcome.parsed.text};",
        "commandId": f"{kind}/{name}/{verb}",
        "commandStatus": {
            "status": "SUCCESS",
            "message": done.sentence,
            "queryId": None if done.query is None else done.query.upper(),
        },
        "commandSequenceNumber": 0,
        "warnings": notes,
    }


def _listed(outcome: Listed, session: Session) -> Entity:
    tree, rows = outcome.parsed.tree, outcome.listing.rows
    match tree:
        case Show(what="streams"):
            return {"@type": "streams", "streams": [_short(each) for each in _of_kind(session, "stream")]}
        case Show(what="tables"):
            return {"@type": "tables", "tables": [_short(each) for each in _of_kind(session, "table")]}
        case Show(what="queries"):
            return {"@type": "queries", "queries": [_query(session, *row) for row in rows]}
        case Show(what="topics"):
            return {"@type": "kafka_topics", "topics": [{"name": row[0], "replicaInfo": [1] * (row[2] or 1)} for row in rows]}
        case Show(what="functions"):
            functions = [{"name": row[0], "type": row[1].upper(), "category": ""} for row in rows]
            return {"@type": "function_names", "functions": functions}
        case Show(what="properties"):
            shown = [{"name": name, "scope": "KSQL", "value": value, "editable": True} for name, value in rows]
            return {"@type": "properties", "properties": shown, "overwrittenProperties": [], "defaultProperties": []}
        case Show(what="variables"):
            return {"@type": "variables", "variables": [{"name": name, "value": value} for name, value in rows]}
        case Show(what="types"):
            return {"@type": "type_list", "types": {name: type_object(kind) for name, kind in session.types.items()}}
        case Describe(what="relation"):
            relation = relation_of(tree, session)
            return {"@type": "sourceDescription", "sourceDescription": _described(relation, session)}
        case Describe(what="streams" | "tables" as what):
            descriptions = [_described(each, session) for each in _of_kind(session, what.removesuffix("s"))]
            return {"@type": "source_descriptions", "sourceDescriptions": descriptions}
        case Describe(what="function"):
            return _function(rows)
    columns = [name for name, _ in outcome.listing.columns]
    return {"@type": "rows", "columns": columns, "rows": [list(row) for row in rows]}


def _of_kind(session: Session, kind: str) -> Iterable[SqlRelation]:
    return sorted((each for each in session.relations.values() if each.kind == kind), key=lambda each: each.name)


def _short(relation: SqlRelation) -> Entity:
    return {
        "type": relation.kind.upper(),
        "name": relation.name,
        "topic": relation.topic.name,
        "keyFormat": relation.topic.key_format.name,
        "valueFormat": relation.topic.value_format.name,
        "isWindowed": relation.window is not None,
    }


def _query(session: Session, name: str, writes: str | None, state: str, _desired_state: str, statement: str | None) -> Entity:
    sink = session.relations.get(writes or "")
    shown = {"running": "RUNNING", "paused": "PAUSED", "failed": "ERROR"}.get(state, "REBALANCING")
    return {
        "queryString": statement or name,
        "sinks": [] if sink is None else [sink.name],
        "sinkKafkaTopics": [] if sink is None else [sink.topic.name],
        "id": name.upper(),
        "statusCount": {shown: 1},
        "queryType": "PERSISTENT",
        "state": shown,
    }


def _described(relation: SqlRelation, session: Session) -> Entity:
    reading = [name for name, written in session.queries.items() if _reads(session, written, relation)]
    return {
        "name": relation.name,
        "windowType": None if relation.window is None else relation.window.type.upper(),
        "readQueries": [
            {"id": name.upper(), "sinks": [session.queries[name]], "queryType": "PERSISTENT"} for name in sorted(reading)
        ],
        "writeQueries": [{"id": name.upper(), "sinks": [relation.name], "queryType": "PERSISTENT"} for name in relation.writers],
        "fields": field_objects(relation.columns, relation.key),
        "type": relation.kind.upper(),
        "timestamp": relation.entry.relation.event_time or "",
        "statistics": "",
        "errorStats": "",
        "extended": False,
        "keyFormat": relation.topic.key_format.name,
        "valueFormat": relation.topic.value_format.name,
        "topic": relation.topic.name,
        "partitions": relation.topic.partitions or 0,
        "replication": 1,
        "statement": "",
        "queryOffsetSummaries": [],
        "sourceConstraints": [],
        "clusterStatistics": [],
        "clusterErrorStats": [],
    }


def _reads(session: Session, written: str, relation: SqlRelation) -> bool:
    sink = session.relations.get(written)
    return sink is not None and relation.definition_name in sink.entry.reads


def _function(rows: Iterable[Any]) -> Entity:
    variants_of_function = list(rows)
    name, kind, *_ = variants_of_function[0]
    variants = [
        {
            "argumentTypes": [arguments],
            "arguments": [{"name": arguments, "type": "", "description": "", "isVariadic": False}],
            "returnType": result,
            "description": doc,
        }
        for _, _, arguments, result, doc in variants_of_function
    ]
    return {
        "@type": "describe_function", "name": name, "description": variants_of_function[0][4], "author": "", "version": "", "path": "internal",
        "functions": variants, "type": kind.upper(),
    }  # fmt: skip

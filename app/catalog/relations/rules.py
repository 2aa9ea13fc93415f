"""Rules for a source's definition beyond the form of its fields. Pure, except for ``inferred``, which asks the connector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from app.access.rules import refuse_beyond_scope
from app.access.scopes import feeds_in
from engine.definition.problems import Problems
from engine.definition.reading import read_definition
from engine.definition.relations import SourceDefinition, TableDefinition
from engine.errors import DefinitionInvalid, Problem
from engine.expressions.suggestions import hint
from engine.expressions.values.nested import NO_KEY
from engine.plan.building.results import check_table_size
from engine.plan.catalog import feed_of
from engine.plan.warnings import DefinitionWarning
from engine.records.inferred import INFER, Inferred
from engine.sources.connector_kinds import control_of
from engine.sources.control import ServiceContext
from engine.statements.sources.inferring import InferenceRequest

Source = TypeVar("Source", bound=SourceDefinition)
EVENT_TIME_KINDS = ("int", "bigint", "timestamp", "string")


def read_source(model: type[Source], body: Any) -> Source:
    """Read a body as a source and check it.

    Raises:
        DefinitionInvalid: with every problem of the form and of ``check_source``.
    """
    reading = read_definition(model, body)
    rule_problems: Sequence[Problem] = ()
    if reading.definition is not None:
        try:
            check_source(reading.definition)
        except DefinitionInvalid as error:
            rule_problems = error.problems
    problems = reading.with_rules(rule_problems)
    if problems or reading.definition is None:
        raise DefinitionInvalid(problems)
    return reading.definition


def check_source(definition: SourceDefinition) -> None:
    """Check columns against each other.

    Raises:
        DefinitionInvalid: with every problem.
    """
    problems = Problems()
    _check_key(definition, problems)
    _check_event_time(definition, problems)
    if isinstance(definition, TableDefinition):
        _check_conflict(definition, problems)
    if isinstance(definition, TableDefinition) and definition.materialize:
        key, columns = ("/key", len(definition.key)), ("/columns", len(definition.columns))
        check_table_size(problems, key, columns, is_versioned=definition.versioned is not None)
    if definition.connector.where is not None:
        problems.condition("/connector/where", definition.connector.where, definition.schema_)
    if definition.connector.has_positions and not isinstance(definition, TableDefinition):
        detail = "changes of a database belong to a table's rows: register a table"
        problems.add("/connector", "unsupported_option", detail)
    for pointer, name in definition.connector.columns_named():
        if name not in definition.schema_:
            problems.add(pointer, "unknown_column", f"{name!r} is not declared{hint(name, definition.schema_.names)}")
        elif name in definition.key:
            problems.add(pointer, "invalid_value", f"{name!r} belongs to the key, which no change may lack; leave it out")
    for problem in definition.connector.faults():
        problems.add(problem.pointer, problem.code, problem.detail)
    if problems.found:
        raise DefinitionInvalid(problems.found)


def source_warnings(definition: SourceDefinition) -> list[DefinitionWarning]:
    """Return the warnings about a source. Code: ``arrival_decides_conflicts`` (V7)."""
    is_open = (
        isinstance(definition, TableDefinition) and definition.versioned is None and "conflict" not in definition.model_fields_set
    )
    if not is_open or definition.event_time is None or definition.connector.has_positions:
        return []
    return [
        DefinitionWarning(
            "/conflict", "arrival_decides_conflicts",
            "a change with an older event time that arrives later overwrites a newer one, and is only counted as `out_of_order`",
            'write "conflict": "latest_event_time" to let event time decide, "versioned": {"history_retention": …} to keep every version, or '
            '"conflict": "latest_arrival" if that is intended',
        )
    ]  # fmt: skip


def topic_warnings(definition: SourceDefinition, topic: str) -> list[DefinitionWarning]:
    """Return the warning about a statement's source whose topic is not a broker's. Code: ``topic_in_built_in_log``.

    Args:
        definition: of the source. There is no warning if it names a feed of the built-in log.
        topic: from KAFKA_TOPIC.
    """
    connector = definition.connector
    if not connector.traits.is_kept_here or any(name is not None for _, name in connector.named()):
        return []
    return [
        DefinitionWarning(
            "/connector", "topic_in_built_in_log",
            f"no broker is named, so the topic {topic!r} is a log in the service: only INSERT and POST …/records add records",
            "write CONNECTION='…' (or BOOTSTRAP='host:port') into WITH to read the topic of a broker; nothing if the built-in log is intended",
        )
    ]  # fmt: skip


def _check_key(definition: SourceDefinition, problems: Problems) -> None:
    schema = definition.schema_
    for index, name in enumerate(definition.key):
        pointer = f"/key/{index}"
        if name not in schema:
            problems.add(pointer, "unknown_column", f"{name!r} is not declared{hint(name, schema.names)}")
        elif schema[name].has_map:
            problems.add(pointer, "type_mismatch", f"{name!r} is of type {schema[name]}, {NO_KEY}")
        elif name in definition.key[:index]:
            problems.add(pointer, "name_clash", f"{name!r} is in the key twice")


def _check_event_time(definition: SourceDefinition, problems: Problems) -> None:
    name, schema = definition.event_time, definition.schema_
    if name is None:
        for part in ("format", "unit"):
            if getattr(definition, f"event_time_{part}") is not None:
                problems.add(f"/event_time_{part}", "unknown_field", f"a {part} needs an `event_time` column to read")
        return
    if name not in schema:
        problems.add("/event_time", "unknown_column", f"{name!r} is not declared{hint(name, schema.names)}")
        return
    kind, unit = schema[name].kind, definition.event_time_unit
    if kind == "int" and unit != "s":
        pointer = "/event_time" if unit is None else "/event_time_unit"
        detail = f'{name!r} is of type int, which fits event times only in seconds: declare it as bigint, or write "event_time_unit": "s"'
        problems.add(pointer, "type_mismatch", detail)
    elif kind not in EVENT_TIME_KINDS:
        detail = (
            f"{name!r} is of type {schema[name]}; an event time is a timestamp, a bigint (ms since 1970, or another `event_time_unit`), "
            "or a string with a format"
        )
        problems.add("/event_time", "type_mismatch", detail)
    elif unit is not None and not schema[name].is_integer:
        detail = f"only a bigint counts in a unit; {name!r} is of type {schema[name]}: leave `event_time_unit` out"
        problems.add("/event_time_unit", "type_mismatch", detail)
    if definition.event_time_format is not None and kind != "string":
        problems.add("/event_time_format", "type_mismatch", f"only a string has a format; {name!r} is of type {schema[name]}")


def _check_conflict(definition: TableDefinition, problems: Problems) -> None:
    """Event time can decide only if there is one, and only if upserts overwrite each other (V2, V7)."""
    if definition.conflict != "latest_event_time":
        return
    if definition.connector.has_positions:
        problems.add(
            "/conflict", "unsupported_option",
            "for changes of a database, the last one in the database's log wins; leave `conflict` out",
        )  # fmt: skip
        return
    if definition.versioned is not None:
        problems.add(
            "/conflict", "unsupported_option",
            "a versioned table keeps every upsert as a version with its own event time, so none overwrites another one; leave `conflict` "
            "out, or leave `versioned` out",
        )  # fmt: skip
    if definition.event_time is None:
        problems.add(
            "/conflict", "conflict_needs_event_time",
            "without an `event_time` column the time of arrival is the event time, so both settings give the same result; name "
            "the column in `event_time`, or leave `conflict` out",
        )  # fmt: skip


_STAND_IN = "inferred"


def inference_request(name: str, model: type[SourceDefinition], body: Any) -> InferenceRequest | None:
    """Return the request for a definition's columns; None if it does not say ``infer``.

    Raises:
        DefinitionInvalid: another part of the definition is wrong.
    """
    if not isinstance(body, dict) or body.get("columns") != INFER:
        return None
    key = body.get("key")
    stand_in = {**body, "columns": {_STAND_IN: "string"}, "key": [_STAND_IN] if key is None else key}
    reading = read_definition(model, stand_in)
    if reading.problems or reading.definition is None:
        raise DefinitionInvalid(reading.problems)
    return InferenceRequest(name, reading.definition, () if key is None else reading.definition.key)


def inferred(asked: InferenceRequest, context: ServiceContext) -> Inferred:
    """Return the columns that a source's connector infers.

    Raises:
        DefinitionInvalid: the connector is wrong, or the columns are unknown.
        Forbidden: the source is outside of the caller's scope.
        SourceUnavailable: the source does not answer now.
    """
    faults = list(asked.definition.connector.faults())
    if faults:
        raise DefinitionInvalid(faults)
    refuse_beyond_scope(feeds_in(asked.definition))
    feed = feed_of(asked.name, asked.definition)
    return control_of(feed).infer(feed, context, asked.key)


def spelled_out(body: dict[str, Any], found: Inferred) -> dict[str, Any]:
    """Return a definition with the inferred columns, and with their key if it names none."""
    columns = {each: str(declared) for each, declared in found.columns.items()}
    key = {"key": list(found.key)} if body.get("key") is None and found.key else {}
    return {**body, "columns": columns, **key}


def warnings_of(found: Inferred) -> list[DefinitionWarning]:
    """Return which fields are no columns, and whether only a part was read. Codes: ``field_left_out``, ``inferred_from_part``."""
    part = [] if found.seen is None else [
        DefinitionWarning(
            "/columns", "inferred_from_part", f"the columns are those of {found.seen}; a column that only other records have is missing",
            "declare it, if there is one",
        )
    ]  # fmt: skip
    return part + [
        DefinitionWarning(
            "/columns", "field_left_out", f"the field {name[:100]!r} is not a column: {why}",
            "declare the columns instead of `infer`, if you need it",
        )
        for name, why in found.left_out
    ]  # fmt: skip

"""``"columns": "infer"`` in the definition of a source: the connector's columns replace it before the definition is checked."""

from __future__ import annotations

from typing import Any

from app.access.rules import refuse_beyond_scope
from app.access.scopes import feeds_in
from engine.definition.reading import read_definition
from engine.definition.relations import SourceDefinition
from engine.errors import DefinitionInvalid
from engine.plan.catalog import feed_of
from engine.plan.warnings import DefinitionWarning
from engine.records.inferred import INFER, Inferred
from engine.sources.connector_kinds import control_of
from engine.sources.control import ServiceContext
from engine.statements.sources.inferring import InferenceRequest

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

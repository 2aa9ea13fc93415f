"""``"columns": "infer"`` in the definition of a source: put in its place is what the connector finds, before anything else is looked at."""

from __future__ import annotations

from typing import Any

from app.domain.access import refuse_beyond_scope
from app.domain.scopes import feeds_in
from engine.connectors.connector_kinds import control_of
from engine.connectors.control import Site
from engine.connectors.inferred import INFER, Inferred
from engine.definition.relations import SourceDefinition
from engine.errors import DefinitionInvalid
from engine.plan.catalog import feed_of
from engine.plan.reading import read_definition
from engine.plan.warnings import DefinitionWarning

_STAND_IN = "inferred"


def spelled_out(name: str, model: type[SourceDefinition], body: Any, site: Site) -> tuple[Any, list[DefinitionWarning]]:
    """Return a definition with its columns spelled out, and what was left out of them.

    Args:
        name: of the relation.
        model: as which it is to be read.
        body: of the request; one that does not say ``infer`` is returned as it is.
        site: what the connector may use.

    Raises:
        DefinitionInvalid: the rest is wrong, or nothing says what the columns are.
        Forbidden: the connector is beyond the scope of who asks.
        SourceUnavailable: nobody can be asked now.
    """
    if not isinstance(body, dict) or body.get("columns") != INFER:
        return body, []
    given = body.get("key")
    stand_in = {**body, "columns": {_STAND_IN: "string"}, "key": [_STAND_IN] if given is None else given}
    reading = read_definition(model, stand_in)
    if reading.problems or reading.definition is None:
        raise DefinitionInvalid(reading.problems)
    found = inferred(name, reading.definition, () if given is None else reading.definition.key, site)
    columns = {each: str(declared) for each, declared in found.columns.items()}
    key = {"key": list(found.key)} if given is None and found.key else {}
    return {**body, "columns": columns, **key}, warnings_of(found)


def inferred(name: str, definition: SourceDefinition, key: tuple[str, ...], site: Site) -> Inferred:
    """Return what a source's connector proposes; of the definition only the connector counts.

    Raises:
        DefinitionInvalid, Forbidden, SourceUnavailable: see ``spelled_out``.
    """
    faults = list(definition.connector.faults())
    if faults:
        raise DefinitionInvalid(faults)
    refuse_beyond_scope(feeds_in(definition))
    feed = feed_of(name, definition)
    return control_of(feed).infer(feed, site, key)


def warnings_of(found: Inferred) -> list[DefinitionWarning]:
    """Say which fields are no columns. Code: ``field_left_out``."""
    return [
        DefinitionWarning(
            "/columns", "field_left_out", f"the field {name[:100]!r} is no column: {why}",
            "declare the columns instead of `infer`, if it is wanted",
        )
        for name, why in found.left_out
    ]  # fmt: skip

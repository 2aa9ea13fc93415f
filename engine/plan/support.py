"""What this release does not execute. It is refused by name, never ignored."""

from __future__ import annotations

from engine.definition.queries import QueryDefinition
from engine.plan.problems import Problems

CODE = "not_supported_yet"


def check_support(definition: QueryDefinition, problems: Problems) -> None:
    """Add a problem for every part of the definition that a later release will execute."""
    into = definition.into
    if into.connector is not None:
        problems.add("/into/connector", CODE, "sending results out comes later; read them over HTTP or from the schema `views`")

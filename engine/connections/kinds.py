"""The kinds of connections, one entry each. A new kind is a module beside these, and its line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from pydantic import ValidationError

from engine.connections.kafka import KafkaConnection
from engine.connections.postgres import PostgresConnection
from engine.connections.registry import RegistryConnection
from engine.connections.s3 import S3Connection
from engine.definition.problems import problems_of
from engine.errors import DefinitionInvalid, Problem
from engine.expressions.suggestions import hint

AnyConnection: TypeAlias = KafkaConnection | RegistryConnection | S3Connection | PostgresConnection
KINDS: Final[Mapping[str, type[AnyConnection]]] = {
    "kafka": KafkaConnection,
    "registry": RegistryConnection,
    "s3": S3Connection,
    "postgres": PostgresConnection,
}


def read_connection(body: Any) -> AnyConnection:
    """Check a definition.

    Raises:
        DefinitionInvalid: one problem per fault, each with its pointer. None of them repeats a value that may be secret.
    """
    if not isinstance(body, Mapping):
        raise DefinitionInvalid([Problem("", "invalid_value", "Must be a JSON object")])
    kind = body.get("type")
    model = KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        allowed = ", ".join(KINDS)
        if "type" not in body:
            raise DefinitionInvalid([Problem("/type", "field_missing", f"Is required: one of {allowed}")])
        near = hint(kind[:40], tuple(KINDS)).partition("; there")[0] if isinstance(kind, str) else ""
        raise DefinitionInvalid([Problem("/type", "unknown_value", f"Must be one of {allowed}{near}")])
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise DefinitionInvalid(problems_of(error, model)) from None  # the cause holds the given values

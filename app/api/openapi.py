"""The OpenAPI page: its words, and what FastAPI's own description of the endpoints lacks."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema

from app.api.access import document_access
from app.api.api_keys import ApiKeyBody
from app.api.documented import TOO_EXPENSIVE, unpacked
from app.api.late_records_schemas import ReplayBody
from app.api.problems import ProblemBody
from app.api.read_schemas import LookupBody
from app.api.schemas import DesiredStateBody
from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition

DESCRIPTION = """
Streaming queries on PySpark that wait, exactly as long as they were told to, until time has settled, and then give the right answer once.

1. Register sources: `PUT /v1/streams/{name}`, `PUT /v1/tables/{name}`.
2. Append records: `POST /v1/streams/{name}/records`.
3. Post a query: `POST /v1/queries`. It writes one stream or table.
4. Read the result: `GET /v1/tables/{name}/rows`, `GET /v1/streams/{name}/records`.
5. Follow it: `GET /v1/tables/{name}/changes` with `Accept: text/event-stream`, every change exactly once, resumable by `Last-Event-ID`.

Every error is `application/problem+json` with a stable `code`; a definition's faults come all at once, each with a pointer to its field.
Where the service asks for API keys, send yours as `Authorization: Bearer sw_…`; each operation says which role it needs.
Times of the service are RFC 3339 in UTC; event times are milliseconds since 1970 with the suffix `_ms`.
"""
TAGS = [
    {"name": "streams", "description": "Append-only relations."},
    {"name": "tables", "description": "Relations with a primary key: upserts and deletes."},
    {"name": "records", "description": "Appending to sources, reading streams, and what was refused."},
    {"name": "queries", "description": "Stored definitions with a wish (running, paused, stopped); each writes one relation."},
    {"name": "reads", "description": "Pull reads of materialised tables."},
    {"name": "api keys", "description": "Who may read, write and administer."},
    {"name": "audit", "description": "Who changed what."},
    {"name": "service", "description": "Health, metrics, version."},
]
_BODIES = (ApiKeyBody, ReplayBody, StreamDefinition, TableDefinition, QueryDefinition, DesiredStateBody, LookupBody, ProblemBody)
# What FastAPI documents for parameters it checks itself; ours answer 400 with a problem.
_READ_BY_POST = ("/v1/validations", "/v1/tables/{name}/rows:lookup")
_WITHOUT_DATABASE = ("/v1/version",)
_UNUSED = ("HTTPValidationError", "ValidationError")


def complete_openapi(app: FastAPI) -> None:
    """Add the schemas of bodies that are read by hand, and take out answers that never come."""
    generate = app.openapi

    def completed() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _completed(generate())
        return app.openapi_schema

    app.openapi = completed  # type: ignore[method-assign]


def _document_limits(paths: dict[str, Any]) -> None:
    """Say of every read of the database that it may be ended: 504 ``read_too_expensive``. Those that wait for a position say 504 already."""
    for path, item in paths.items():
        for method, operation in item.items():
            is_read = method == "get" or path in _READ_BY_POST
            if is_read and path.startswith("/v1/") and path not in _WITHOUT_DATABASE:
                operation["responses"].setdefault("504", TOO_EXPENSIVE)


def _completed(document: dict[str, Any]) -> dict[str, Any]:
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    _, bodies = models_json_schema(
        [(model, "validation") for model in _BODIES], by_alias=True, ref_template="#/components/schemas/{model}"
    )
    schemas |= bodies["$defs"]
    for name in _UNUSED:
        schemas.pop(name, None)
    document["paths"] = unpacked(document["paths"])
    for path in document["paths"].values():
        for operation in path.values():
            answers = operation["responses"]
            described = answers.get("422", {}).get("content", {}).get("application/json", {}).get("schema", {}).get("$ref", "")
            if described.endswith("/HTTPValidationError"):
                del answers["422"]
    _document_limits(document["paths"])
    document_access(document)
    return document

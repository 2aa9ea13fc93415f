"""The OpenAPI page: its texts, and what FastAPI's own description of the endpoints lacks."""

from __future__ import annotations

import copy
from typing import Any

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema

from app.access.guard import document_access
from app.access.keys.routes import ApiKeyBody
from app.access.tokens.debezium import DebeziumCredentials, DebeziumRefresh
from app.catalog.connections.routes import ConnectionDefinition
from app.catalog.history.rewind_models import ForkBody, RewindBody
from app.comparisons.routes import ComparisonBody
from app.errors.error_list import ERRORS, explained_at
from app.http.answers.documented import TOO_EXPENSIVE, unpacked
from app.http.answers.problems import ProblemBody
from app.http.schemas import DesiredStateBody
from app.lateness.record_routes import ReplayBody
from app.reads.routes import LookupBody
from app.reads.row_filters import COLUMN_PREFIX, KEY_PREFIX
from app.sql.answers import StatementsBody
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
    {"name": "records", "description": "Append to sources, read streams, list rejects."},
    {
        "name": "queries",
        "description": "Stored definitions with a desired state (running, paused, stopped); each writes one relation.",
    },
    {"name": "sql", "description": "Statements of SQL: definitions, pull and push queries."},
    {"name": "reads", "description": "Pull reads of materialised tables."},
    {
        "name": "connections",
        "description": "Brokers, registries, object stores and databases, with their secrets.",
    },
    {"name": "api keys", "description": "Who may read, write and administer."},
    {"name": "audit", "description": "Who changed what."},
    {"name": "service", "description": "Health, metrics, version."},
]
_BODIES = (
    ApiKeyBody,
    ConnectionDefinition,
    DebeziumCredentials,
    DebeziumRefresh,
    ReplayBody,
    StreamDefinition,
    TableDefinition,
    QueryDefinition,
    DesiredStateBody,
    ForkBody,
    RewindBody,
    LookupBody,
    StatementsBody,
    ComparisonBody,
    ProblemBody,
)
# FastAPI documents 422 for parameters that it checks itself; this service answers 400 with a problem.
_READ_BY_POST = ("/v1/validations", "/v1/comparisons", "/v1/tables/{name}/rows:lookup")
_WITHOUT_DATABASE = ("/v1/version", "/v1/settings", "/v1/functions", "/v1/errors", "/v1/errors/{code}", "/v1/me")
_CODED = ("ProblemBody", "FaultBody", "ProblemItem", "QueryError")
_UNUSED = ("HTTPValidationError", "ValidationError")


def complete_openapi(app: FastAPI) -> None:
    """Add the schemas of bodies that are not parsed by FastAPI, and remove answers that never occur."""
    generate = app.openapi

    def completed() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _completed(generate())
        return app.openapi_schema

    app.openapi = completed  # type: ignore[method-assign]


def _document_limits(paths: dict[str, Any]) -> None:
    """Document 504 ``read_too_expensive`` for every read of the database. Reads that wait for a position document 504 already."""
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
    for name, schema in schemas.items():
        schemas[name] = _for_generators(schema)
    for name in _CODED:
        code = schemas[name]["properties"]["code"]
        schemas[name]["properties"]["code"] = {"$ref": "#/components/schemas/ErrorCode", "description": code["description"]}
    schemas["ErrorCode"] = {
        "type": "string",
        "title": "ErrorCode",
        "description": "Code of an error; `GET /v1/errors/{code}` explains it. Later versions have more.",
        "enum": sorted(ERRORS),
    }
    document_access(document)
    for path, operations in document["paths"].items():
        for operation in operations.values():
            _place_examples(path, operation)
        if path in _CONDITIONS:
            operations["get"]["parameters"] = [*operations["get"].get("parameters", ()), *map(_condition, _CONDITIONS[path])]
    return document


def _for_generators(schema: Any) -> Any:
    """Return a schema with the references that fields name, and without objects as defaults, which client generators cannot write."""
    if isinstance(schema, list):
        return [_for_generators(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    component_names = schema.get("x-refers-to")
    if component_names is not None:
        members = [{"$ref": f"#/components/schemas/{name}"} for name in component_names]
        is_nullable = any(member.get("type") == "null" for member in schema.get("anyOf", ()))
        texts = {name: schema[name] for name in ("title", "description") if name in schema}
        many = [*members, {"type": "null"}] if is_nullable else members
        return {**texts, **(many[0] if len(many) == 1 else {"anyOf": many})}
    return {
        name: _for_generators(inner)
        for name, inner in schema.items()
        if not (name == "default" and isinstance(inner, dict) and inner and ("$ref" in schema or "oneOf" in schema))
    }


def _place_examples(path: str, operation: dict[str, Any]) -> None:
    """Change examples of errors to the path of their operation."""
    parts = path.split("/")
    kind = parts[2] if len(parts) > 2 and parts[1] == "v1" else ""
    name = _NAMES.get(kind, "x")
    place = path.replace("{name}", name).replace("{key}", "JFK").replace("{code}", "query_not_found")
    operation["responses"] = copy.deepcopy(operation["responses"])  # operations share them
    for status, answer in operation["responses"].items():
        for content in answer.get("content", {}).values():
            example = content.get("example")
            if isinstance(example, dict) and "request_id" in example:
                code, detail = (
                    _LOST.get(kind, (example["code"], example["detail"]))
                    if status == "404"
                    else (example["code"], example["detail"])
                )
                content["example"] = {
                    **example, "instance": place, "code": code, "detail": detail, "type": explained_at(code),
                }  # fmt: skip


def _condition(prefix: str) -> dict[str, Any]:
    """Describe `key.<column>=` and `where.<column>=` as an object whose members are parameters of their own (form, exploded)."""
    what = (
        "columns of the key"
        if prefix == KEY_PREFIX
        else "any columns; an operator may follow a column: .eq .ne .gt .ge .lt .le .in .null"
    )
    return {
        "name": f"{prefix.removesuffix('.')}_conditions",
        "in": "query",
        "required": False,
        "style": "form",
        "explode": True,
        "description": f"Conditions on {what}: each member is a parameter of its own, such as `{prefix}origin=JFK`.",
        "schema": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "propertyNames": {"pattern": f"^{prefix.removesuffix('.')}[.]"},
            "examples": [{f"{prefix}origin": "JFK"}],
        },
    }


_CONDITIONS = {
    "/v1/tables/{name}/rows": (KEY_PREFIX, COLUMN_PREFIX),
    "/v1/tables/{name}/rows/{key}": (KEY_PREFIX, COLUMN_PREFIX),
    "/v1/queries/{name}/late-records": (KEY_PREFIX,),
    "/v1/queries/{name}/explain": (KEY_PREFIX,),
}
"""Paths with conditions on columns, which FastAPI cannot describe."""

_NAMES = {
    "streams": "departures",
    "tables": "weather",
    "queries": "delays",
    "api-keys": "dashboard",
    "connections": "orders-broker",
}
_LOST = {
    "errors": ("error_not_found", "there is no error with the code 'query_not_fond'; did you mean query_not_found?"),
    "streams": ("relation_not_found", "there is no stream 'departures'; GET /v1/streams lists all"),
    "tables": ("relation_not_found", "there is no table 'weather'; GET /v1/tables lists all"),
    "connections": ("connection_not_found", "there is no connection 'orders-broker'; GET /v1/connections lists all"),
    "api-keys": ("api_key_not_found", "there is no API key 'dashboard'; GET /v1/api-keys lists all"),
}

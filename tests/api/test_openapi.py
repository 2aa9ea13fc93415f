"""The OpenAPI document is complete: every operation explains itself, with examples and every error it can answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema_rs
import pytest
from fastapi import FastAPI

from tests.api_document import api_document
from tests.unit.definition.test_described import INTERNAL

Operation = dict[str, Any]
METHODS = ("get", "put", "post", "delete")


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return api_document()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, Operation]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            assert method in METHODS
            yield f"{method.upper()} {path}", operation


def contents(operation: Operation) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        yield "request", media_type, content
    for status, answer in operation["responses"].items():
        for media_type, content in answer.get("content", {}).items():
            yield status, media_type, content


def test_the_paths_are_those_of_the_product(document: dict[str, Any]) -> None:
    assert set(document["paths"]) == {
        "/v1/streams", "/v1/streams/{name}", "/v1/streams/{name}/records", "/v1/streams/{name}/changes",
        "/v1/tables", "/v1/tables/{name}", "/v1/tables/{name}/records", "/v1/tables/{name}/changes",
        "/v1/tables/{name}/rows", "/v1/tables/{name}/rows/{key}",
        "/v1/tables/{name}/rows:lookup",
        "/v1/streams/{name}/rejects", "/v1/streams/{name}/lineage", "/v1/tables/{name}/rejects", "/v1/tables/{name}/lineage",
        "/v1/queries", "/v1/queries/{name}", "/v1/queries/{name}/desired-state", "/v1/queries/{name}/restart", "/v1/queries/{name}/status",
        "/v1/queries/{name}/fork", "/v1/queries/{name}/rewind", "/v1/queries/{name}/restore-points",
        "/v1/queries/{name}/events", "/v1/queries/{name}/runs", "/v1/queries/{name}/late-records",
        "/v1/queries/{name}/lateness", "/v1/queries/{name}/explain", "/v1/queries/{name}/late-records/replay",
        "/v1/statements", "/v1/validations", "/v1/comparisons", "/v1/functions", "/v1/errors", "/v1/errors/{code}",
        "/v1/debezium/auth/authenticate", "/v1/debezium/auth/refreshToken",
        "/v1/connections", "/v1/connections/{name}", "/v1/connections/{name}/check",
        "/v1/api-keys", "/v1/api-keys/{name}", "/v1/audit", "/v1/drivers", "/v1/settings",
        "/v1/me", "/v1/overview", "/v1/version", "/healthz", "/readyz", "/metrics",
    }  # fmt: skip


def test_every_operation_has_a_summary_a_description_a_tag_and_an_id_of_its_own(document: dict[str, Any]) -> None:
    tags = {tag["name"] for tag in document["tags"]}
    ids = []
    for name, operation in operations(document):
        assert operation["summary"], name
        assert operation["description"], name
        assert set(operation["tags"]) <= tags, name
        ids.append(operation["operationId"])
        for parameter in operation.get("parameters", ()):
            assert parameter.get("description"), f"{name} {parameter['name']}"
    assert len(ids) == len(set(ids))
    assert max(map(len, ids)) <= 20, "short, for generators make names of them"


def test_every_body_has_an_example_that_fits_its_schema(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        for part, media_type, content in contents(operation):
            where = f"{name} {part} {media_type}"
            if media_type == "application/vnd.apache.arrow.stream":
                continue
            examples = [example["value"] for example in content.get("examples", {}).values()] + (
                [content["example"]] if "example" in content else []
            )
            assert examples, where
            if "json" not in media_type or media_type == "application/x-ndjson":
                continue
            schema = {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                **content["schema"],
                "components": document["components"],
            }
            validator = jsonschema_rs.validator_for(schema)
            for example in examples:
                assert [error.message for error in validator.iter_errors(example)] == [], where


def test_every_read_of_the_database_says_that_it_may_be_ended(document: dict[str, Any]) -> None:
    reads = {
        path: item["get"]["responses"] for path, item in document["paths"].items() if "get" in item and path.startswith("/v1/")
    }
    assert {path for path, answers in reads.items() if "504" not in answers} == {
        "/v1/version", "/v1/settings", "/v1/functions", "/v1/errors", "/v1/errors/{code}", "/v1/me",
    }  # fmt: skip
    example = reads["/v1/queries/{name}/late-records"]["504"]["content"]["application/problem+json"]["example"]
    assert (example["code"], example["retryable"]) == ("read_too_expensive", False)


def test_every_operation_documents_its_errors_as_problems(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        errors = {status: answer for status, answer in operation["responses"].items() if int(status) >= 400}
        assert {"400", "500", "503"} <= set(errors), name
        for status, answer in errors.items():
            assert list(answer["content"]) == ["application/problem+json"], f"{name} {status}"
            assert answer["content"]["application/problem+json"]["schema"] == {"$ref": "#/components/schemas/ProblemBody"}


def test_answers_have_no_optional_fields(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        for part, media_type, content in contents(operation):
            reference = content.get("schema", {}).get("$ref")
            if part.startswith("2") and reference is not None and media_type == "application/json":
                schema = document["components"]["schemas"][reference.rsplit("/", 1)[1]]
                assert set(schema["properties"]) == set(schema["required"]), name


def properties(schema: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every property of a schema, at every depth, with its place. Examples are values, no schemas."""
    if isinstance(schema, dict):
        for name, declared in schema.get("properties", {}).items():
            yield f"{where}.{name}", declared
        for name, inner in schema.items():
            if name in ("properties", "patternProperties", "$defs"):
                for own, each in inner.items():
                    yield from properties(each, f"{where}.{own}")
            elif name not in ("example", "examples", "default", "enum", "const"):
                yield from properties(inner, where)
    elif isinstance(schema, list):
        for each in schema:
            yield from properties(each, where)


def test_every_field_of_every_schema_is_described_without_internals(document: dict[str, Any]) -> None:
    schemas = [*document["components"]["schemas"].items(), *operations(document)]
    found = {where: declared for name, schema in schemas for where, declared in properties(schema, name)}
    assert len(found) > 350
    assert [where for where, declared in found.items() if not declared.get("description", "").strip()] == []
    unclear = {where: each["description"] for where, each in found.items() if INTERNAL.search(each["description"])}
    assert unclear == {}
    assert [where for where, each in found.items() if not each["description"].rstrip().endswith((".", ")"))] == []


def test_every_schema_is_described(document: dict[str, Any]) -> None:
    assert [name for name, schema in document["components"]["schemas"].items() if not schema.get("description")] == []


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                yield value["$ref"]
            for inner in value.values():
                yield from references(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from references(inner)

    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(references(document)) <= known
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_definitions_and_errors_in_answers_are_typed(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    query = {"$ref": "#/components/schemas/QueryDefinition"}
    for answer in ("QueryAnswer", "StoredQueryAnswer"):
        assert schemas[answer]["properties"]["definition"]["$ref"] == query["$ref"]
    assert schemas["ValidationAnswer"]["properties"]["definition"]["anyOf"] == [query, {"type": "null"}]
    source = [{"$ref": f"#/components/schemas/{kind}Definition"} for kind in ("Stream", "Table")]
    assert schemas["RelationAnswer"]["properties"]["definition"]["anyOf"] == [*source, {"type": "null"}]
    for answer in ("StatusAnswer", "Run"):
        assert {"$ref": "#/components/schemas/QueryError"} in schemas[answer]["properties"]["error"]["anyOf"]


def test_no_default_is_an_object_that_generators_cannot_write(document: dict[str, Any]) -> None:
    found = [
        (name, field)
        for name, schema in document["components"]["schemas"].items()
        for field, declared in schema.get("properties", {}).items()
        if isinstance(declared.get("default"), dict) and declared["default"]
    ]
    assert found == []


def test_an_example_is_about_its_own_path(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        method, path = name.split(" ")
        for status, answer in operation["responses"].items():
            for content in answer.get("content", {}).values():
                example = content.get("example")
                if isinstance(example, dict) and "request_id" in example:
                    assert "{" not in example["instance"], name
                    assert example["instance"].split("/")[:3] == path.split("/")[:3], f"{method} {path} {status}"
                    assert (status, example["code"]) != ("404", "query_not_found") or "/queries" in path


async def test_the_page_and_its_document_are_served(client: httpx.AsyncClient, app: FastAPI) -> None:
    page = await client.get("/docs")
    assert (page.status_code, "/openapi.json" in page.text) == (200, True)
    assert (await client.get("/openapi.json")).json()["info"]["title"] == app.title

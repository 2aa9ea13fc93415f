"""A zero byte in any text of any operation's body, path, parameters and headers is refused, and never a fault of the service."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.api_document import api_document

pytestmark = pytest.mark.usefixtures("sources")

DOCUMENT = api_document()
OPERATIONS = [(method.upper(), path, operation) for path, item in DOCUMENT["paths"].items() for method, operation in item.items()]
NAMES = {"name": "departures", "key": "JFK", "code": "query_not_found"}


def with_zeros(value: Any) -> Iterator[Any]:
    """Yield copies of JSON, each with a zero byte in one of its texts or names."""
    match value:
        case str():
            yield f"{value}\0"
        case list():
            for index, item in enumerate(value):
                for changed in with_zeros(item):
                    yield [*value[:index], changed, *value[index + 1 :]]
        case dict():
            for name, item in value.items():
                yield {**{key: each for key, each in value.items() if key != name}, f"{name}\0": item}
                for changed in with_zeros(item):
                    yield {**copy.deepcopy(value), name: changed}


def bodies() -> Iterator[tuple[str, str, Any]]:
    for method, path, operation in OPERATIONS:
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if content is None or path.endswith("/records"):  # values of records have a rule of their own
            continue
        for example in content["examples"].values():
            yield method, path.format(**NAMES), example["value"]


async def test_a_zero_byte_in_any_text_of_a_body_is_a_422(client: httpx.AsyncClient) -> None:
    asked = 0
    for method, path, body in bodies():
        for changed in with_zeros(body):
            answer = await client.request(method, path, json=changed)
            asked += 1
            if path == "/v1/validations":  # answers 200 to any JSON
                assert answer.json()["problems"][0]["code"] == "invalid_string", answer.text
            else:
                assert (answer.status_code, answer.json()["code"]) == (422, "invalid_string"), (
                    method,
                    path,
                    changed,
                    answer.text,
                )
    assert asked > 100


async def test_a_zero_byte_in_a_path_a_parameter_or_a_header_is_a_400(client: httpx.AsyncClient) -> None:
    for method, path, operation in OPERATIONS:
        usual = path.format(**NAMES)
        requests: list[dict[str, Any]] = [
            {"url": path.format(**{**NAMES, name: quote("a\0")})} for name in NAMES if f"{{{name}}}" in path
        ]
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "query":
                requests.append({"url": usual, "params": {parameter["name"]: "a\0"}})
            elif parameter["in"] == "header":
                requests.append({"url": usual, "headers": [(parameter["name"].encode(), b"a\0")]})
        for request in requests:
            answer = await client.request(method, **request)
            assert (answer.status_code, answer.json()["code"]) == (400, "bad_parameter"), (method, request, answer.text)


async def test_a_zero_byte_in_statements_alone_is_a_422(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/statements", content=b"SHOW STREAMS;\0", headers={"content-type": "application/sql"})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_string"), answer.text

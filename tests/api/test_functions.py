"""GET /v1/functions."""

from __future__ import annotations

import httpx

from engine.expressions.aggregates.aggregates import AGGREGATES
from engine.expressions.library.function_list import FUNCTIONS


async def test_what_the_compiler_knows_is_listed(client: httpx.AsyncClient) -> None:
    body = (await client.get("/v1/functions")).json()
    assert [each["name"] for each in body["functions"]] == list(FUNCTIONS)
    assert [each["name"] for each in body["aggregates"]] == list(AGGREGATES)
    substring = next(each for each in body["functions"] if each["name"] == "substring")
    assert [(each["name"], each["optional"]) for each in substring["arguments"]] == [
        ("text", False),
        ("start", False),
        ("length", True),
    ]
    assert substring["examples"][0] == {"expression": "substring('coffee', 2, 3)", "gives": "off"}
    assert body["operators"]
    assert body["types"]

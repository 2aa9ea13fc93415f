"""GET /v1/functions, and the reference that is made of the same lists."""

from __future__ import annotations

import httpx

from app.cli.reference import reference
from engine.definition.aggregates import AGGREGATES
from engine.definition.function_list import FUNCTIONS
from tests.conftest import ROOT


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


def test_the_reference_is_what_the_code_makes() -> None:
    assert (ROOT / "docs/reference.md").read_text() == reference(), "run `make reference`"

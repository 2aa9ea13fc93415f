"""Every field of a definition says what it is for, in users' words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition

# What only readers of the code know: rule ids, module paths, double backquotes of docstrings.
INTERNAL = re.compile(r"``|engine\.|app\.|\b(?:T|V|J|TT|SS|FK|A|F|W|S|P|Q)\d{1,2}\b|model_dump|pydantic")


def texts(schema: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (where, description) of every model and every field."""
    for name, model in {schema["title"]: schema, **schema.get("$defs", {})}.items():
        yield name, model.get("description", "")
        for field, declared in model.get("properties", {}).items():
            yield f"{name}.{field}", declared.get("description", "")


@pytest.mark.parametrize("model", [QueryDefinition, StreamDefinition, TableDefinition])
def test_every_default_is_what_a_user_would_write(model: type[BaseModel]) -> None:
    schema = model.model_json_schema()
    for part in (schema, *schema["$defs"].values()):
        for name, field in part.get("properties", {}).items():
            is_text = "string" in {field.get("type"), *(member.get("type") for member in field.get("anyOf", ()))}
            assert not is_text or isinstance(field.get("default", ""), str | None), f"{name}: {field['default']}"


@pytest.mark.parametrize("model", [QueryDefinition, StreamDefinition, TableDefinition])
def test_every_field_is_described_without_internals(model: type[BaseModel]) -> None:
    found = dict(texts(model.model_json_schema()))
    assert [where for where, text in found.items() if not text] == []
    assert {where: text for where, text in found.items() if INTERNAL.search(text)} == {}

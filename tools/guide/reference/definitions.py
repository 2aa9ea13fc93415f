"""Every field of a definition, made of the models that read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition
from tools.guide.markdown import code as code_of
from tools.guide.markdown import link, page, table, value

_HEAD: Final = """# Definitions

A definition is the body of a PUT or POST that makes a stream, a table or a query. [SQL](sql.md) makes the same; `GET` shows what was
made as both.

Durations are texts such as `500ms`, `10s`, `5m`, `2h`, `1d`, or ISO 8601 (`PT10S`). Names have lower case letters, digits and `_`, and
start with a letter.
Types of columns are in [Types](types.md), expressions in [Functions](functions.md)."""
KINDS: Final[Mapping[str, type[BaseModel]]] = {
    "Streams": StreamDefinition,
    "Tables": TableDefinition,
    "Queries": QueryDefinition,
}
_REQUESTS: Final = {
    "Streams": "`PUT /v1/streams/{name}`",
    "Tables": "`PUT /v1/tables/{name}`",
    "Queries": "`POST /v1/queries`, `PUT /v1/queries/{name}`",
}


def definitions() -> str:
    """Return the page."""
    parts = [_HEAD]
    seen: set[str] = set()
    for title, model in KINDS.items():
        schema = model.model_json_schema()
        parts += [f"## {title}", f"{_REQUESTS[title]}\n\n{schema['description']}", fields(schema)]
        for name, inner in schema["$defs"].items():
            if name not in seen and "properties" in inner:
                seen.add(name)
                parts += [f"### {name}", inner["description"], fields(inner)]
    return page(*parts)


def fields(schema: Mapping[str, Any]) -> str:
    """Return the fields of a model as a table."""
    required = set(schema.get("required", ()))
    rows = (
        (
            code_of(name),
            type_of(declared),
            "required" if name in required else value(declared.get("default")),
            declared.get("description", ""),
        )
        for name, declared in schema["properties"].items()
    )
    return table(("Field", "Type", "Default", "Meaning"), rows)


def type_of(declared: Mapping[str, Any]) -> str:
    """Return what a field may hold, in words; models are links to their headings on the page."""
    if "$ref" in declared:
        name = declared["$ref"].rsplit("/", 1)[1]
        return link(name, "", name)
    members = [*declared.get("anyOf", ()), *declared.get("oneOf", ())]
    if members:
        return " or ".join(dict.fromkeys(type_of(member) for member in members))
    if "enum" in declared or "const" in declared:
        return ", ".join(value(each) for each in declared.get("enum", [declared.get("const")]))
    if "PT5M" in declared.get("examples", ()):
        return "duration"
    kind = declared.get("type", "any")
    if kind == "array":
        return f"list of {type_of(declared.get('items', {}))}"
    if kind == "object":
        inner = declared.get("additionalProperties")
        return f"name → {type_of(inner)}" if isinstance(inner, dict) else "object"
    bounds = [f"{word} {declared[key]:,}" for key, word in (("minimum", "at least"), ("maximum", "at most")) if key in declared]
    return " ".join([{"string": "text", "integer": "whole number"}.get(kind, kind), *bounds])

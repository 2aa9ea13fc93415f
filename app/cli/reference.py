"""The reference of definitions as Markdown, made of what the service itself reads: `make reference` writes docs/reference.md.

A test compares the file with what this makes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel

from engine.definition.aggregates import AGGREGATES
from engine.definition.documented import Example, JsonValue
from engine.definition.function_list import FUNCTIONS
from engine.definition.operator_list import OPERATORS
from engine.definition.pseudo_columns import PSEUDO_COLUMNS
from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition
from engine.definition.table_functions import TABLE_FUNCTIONS
from engine.definition.type_list import TYPES

_HEAD: Final = """# Reference of definitions

Made by `make reference` of the code that reads definitions; the examples run as tests. `GET /v1/functions` answers the second half as JSON,
and `GET /v1/errors` lists every code of a refusal.

Durations are texts such as `500ms`, `10s`, `5m`, `2h`, `1d`, or ISO 8601 (`PT10S`). Names have lower case letters, digits and `_`, and
start with a letter.
"""
_KINDS: Final[Mapping[str, type[BaseModel]]] = {
    "Streams: `PUT /v1/streams/{name}`": StreamDefinition,
    "Tables: `PUT /v1/tables/{name}`": TableDefinition,
    "Queries: `POST /v1/queries`, `PUT /v1/queries/{name}`": QueryDefinition,
}


def reference() -> str:
    """Return the whole document."""
    parts = [_HEAD]
    seen: set[str] = set()
    for title, model in _KINDS.items():
        schema = model.model_json_schema()
        parts.append(f"## {title}\n\n{schema['description']}\n")
        parts.append(_fields(schema))
        for name, inner in schema["$defs"].items():
            if name not in seen and "properties" in inner:
                seen.add(name)
                parts.append(f"### {name}\n\n{inner['description']}\n")
                parts.append(_fields(inner))
    parts.append("## Types\n")
    parts.append(
        _table(("type", "holds", "in JSON"), ((_code(each.form), each.doc, _code(_json(each.example))) for each in TYPES))
    )
    parts.append("## Pseudo-columns\n")
    parts.append(_table(("form", "type", "says"), ((_code(each.form), each.type, each.doc) for each in PSEUDO_COLUMNS)))
    parts.append("## Operators\n")
    operators = ((_code(each.form), each.result, each.doc, _examples(each.examples)) for each in OPERATORS)
    parts.append(_table(("form", "gives", "meaning", "examples"), operators))
    parts.append("## Functions\n")
    functions = (
        (_code(f"{each.name}({each.takes})"), each.result, each.doc, _examples(each.examples), ", ".join(map(_code, each.ksqldb)))
        for each in FUNCTIONS.values()
    )
    parts.append(_table(("function", "gives", "meaning", "examples", "in SQL"), functions))
    parts.append("## Functions that make rows\n")
    parts.append(
        _table(("function", "gives", "meaning"), ((_code(each.form), each.result, each.doc) for each in TABLE_FUNCTIONS))
    )
    parts.append("## Aggregates\n\nOver a table only those marked *undoable* work: a change takes the old row out again.\n")
    parts.append(_table(("aggregate", "of", "gives", "meaning", "example"), _aggregates()))
    return "\n".join(parts)


def _aggregates() -> Iterator[tuple[str, ...]]:
    for each in AGGREGATES.values():
        names = "".join(f", also `{alias}`" for alias in each.aliases)
        undoable = "; *undoable*" if each.is_undoable else ""
        example = f"{_code(each.example.call)} of {_code(_json(list(each.example.values)))} → {_code(_json(each.example.gives))}"
        yield _code(each.form) + names, each.takes, each.result, each.doc + undoable, example


def _fields(schema: Mapping[str, Any]) -> str:
    required = set(schema.get("required", ()))
    rows = (
        (
            _code(name),
            _type(declared),
            "required" if name in required else _code(_json(declared.get("default"))),
            declared.get("description", ""),
        )
        for name, declared in schema["properties"].items()
    )
    return _table(("field", "type", "default", "meaning"), rows)


def _type(declared: Mapping[str, Any]) -> str:
    """Return what a field may hold, in words."""
    if "$ref" in declared:
        name = declared["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    members = [*declared.get("anyOf", ()), *declared.get("oneOf", ())]
    if members:
        return " or ".join(dict.fromkeys(_type(member) for member in members))
    if "enum" in declared or "const" in declared:
        return ", ".join(_code(_json(value)) for value in declared.get("enum", [declared.get("const")]))
    if "PT5M" in declared.get("examples", ()):
        return "duration"
    kind = declared.get("type", "any")
    if kind == "array":
        return f"list of {_type(declared.get('items', {}))}"
    if kind == "object":
        inner = declared.get("additionalProperties")
        return f"name → {_type(inner)}" if isinstance(inner, dict) else "object"
    bounds = [f"{word} {declared[key]:,}" for key, word in (("minimum", "at least"), ("maximum", "at most")) if key in declared]
    return " ".join([{"string": "text", "integer": "whole number"}.get(kind, kind), *bounds])


def _examples(examples: Iterable[Example]) -> str:
    return "; ".join(f"{_code(each.expression)} → {_code(_json(each.gives))}" for each in examples)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |\n" for line in lines)


def _json(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)


def _code(text: str) -> str:
    return f"`{text}`"


if __name__ == "__main__":
    sys.stdout.write(reference())

"""Every request of the interface, made of the OpenAPI document: a page for each of its tags."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import SecretStr

from app.main.main import create_app
from app.settings.settings import Settings
from tools.guide.markdown import block, code, link, page, table
from tools.guide.reference.definitions import KINDS, type_of

Json = Mapping[str, Any]

_HEAD: Final = """# HTTP

Every request, by what it is about. [`/docs`](/docs) of a running service has the same, ready to try, and `/openapi.json` for generators
of clients. Bodies and answers are JSON
unless a request says otherwise. An answer with a status of 400 or more is a problem with a code: see [Errors](../errors.md)."""
_DEFINITIONS: Final = {model.__name__: title for title, model in KINDS.items()}
_OF_ALL: Final = ("400", "401", "403", "406", "413", "415", "429", "500", "503", "504")
"""Statuses that most requests can answer, and that mean the same everywhere."""
_DEPTH: Final = 3
_SCHEMAS: Final = "#/components/schemas/"


def document() -> dict[str, Any]:
    """Return the OpenAPI document of a service; none is started, and no database asked."""
    return create_app(Settings(database_url=SecretStr("postgresql://nobody@localhost/nothing"))).openapi()


def http(described: Json) -> dict[str, str]:
    """Return the pages: their paths below the reference, and their texts."""
    pages = {"http/index.md": _index(described)}
    for tag in described["tags"]:
        parts = [f"# {_title(tag['name'])}", tag["description"]]
        parts += [_operation(method, path, operation, described) for method, path, operation in _of_tag(tag["name"], described)]
        pages[page_of(tag["name"])] = page(*parts)
    return pages


def page_of(tag: str) -> str:
    """Return the path of a tag's page."""
    return f"http/{tag.replace(' ', '-')}.md"


def operations(described: Json) -> Iterator[tuple[str, str, Json]]:
    """Yield method, path and description of each request."""
    for path, item in described["paths"].items():
        for method, operation in item.items():
            yield method.upper(), path, operation


def _of_tag(tag: str, described: Json) -> Iterator[tuple[str, str, Json]]:
    return (each for each in operations(described) if each[2]["tags"][0] == tag)


def _index(described: Json) -> str:
    parts = [_HEAD]
    for tag in described["tags"]:
        path = page_of(tag["name"]).removeprefix("http/")
        rows = [
            (link(code(f"{method} {place}"), path, f"{method} {place}"), operation["summary"])
            for method, place, operation in _of_tag(tag["name"], described)
        ]
        parts += [f"## {link(_title(tag['name']), path)}", tag["description"], table(("Request", "Does"), rows)]
    return page(*parts)


def _operation(method: str, path: str, operation: Json, described: Json) -> str:
    role = operation.get("x-required-role")
    needs = "Needs no key." if role is None else f"Where the service asks for keys: needs the role *{role}*."
    return page(
        f"## `{method} {path}`",
        f"{operation['summary']}. {needs}",
        operation["description"],
        _parameters(operation),
        _body(operation, described),
        _answers(operation, described),
    )


def _parameters(operation: Json) -> str:
    rows = [
        (
            code(each["name"]),
            {"path": "path", "query": "parameter", "header": "header"}[each["in"]],
            type_of(each["schema"]),
            "required"
            if each.get("required")
            else code(json.dumps(each["schema"]["default"]))
            if each["schema"].get("default") is not None
            else "",
            each.get("description", ""),
        )
        for each in operation.get("parameters", ())
    ]
    return table(("Name", "In", "Type", "Default", "Meaning"), rows)


def _body(operation: Json, described: Json) -> str:
    contents = operation.get("requestBody", {}).get("content", {})
    parts = ["**Body**"] if contents else []
    for media_type, content in contents.items():
        parts += [f"{code(media_type)}{_described(content['schema'])}", _fields(content["schema"], described)]
        parts += [
            _example(f"Example: {example.get('summary', name)}", example["value"])
            for name, example in content.get("examples", {}).items()
        ]
        if "example" in content:
            parts.append(_example("Example", content["example"]))
    return page(*parts) if parts else ""


def _answers(operation: Json, described: Json) -> str:
    parts: list[str] = []
    for status, answer in operation["responses"].items():
        if not status.startswith("2"):
            continue
        parts.append(f"**Answer {status}:** {answer['description']}")
        for media_type, content in answer.get("content", {}).items():
            schema = content.get("schema", {})
            parts += [f"{code(media_type)}{_described(schema)}", _fields(schema, described)]
            if "example" in content:
                parts.append(_example("Example", content["example"]))
    refusals = [status for status in operation["responses"] if not status.startswith("2") and status not in _OF_ALL]
    general = [status for status in _OF_ALL if status in operation["responses"]]
    said = [f"{status} ({operation['responses'][status]['description'].rstrip('.').lower()})" for status in refusals] + general
    if said:
        parts.append(f"Refused with {', '.join(said)}.")
    return page(*parts) if parts else ""


def _described(schema: Json) -> str:
    text = schema.get("description", "")
    return f": {text}" if text and "$ref" not in schema else ""


def _fields(schema: Json, described: Json) -> str:
    """Return the fields of a body; of a definition where they are described."""
    names = list(_models(schema))
    known = [_DEFINITIONS[name] for name in names if name in _DEFINITIONS]
    if known:
        return "The fields: " + ", ".join(link(title, "../definitions.md", title) for title in known) + "."
    return table(("Field", "Type", "Meaning"), _flat(schema, described, "", frozenset()))


def _models(schema: Json) -> Iterator[str]:
    if "$ref" in schema:
        yield schema["$ref"].removeprefix(_SCHEMAS)
    for member in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *([schema["items"]] if "items" in schema else ())):
        yield from _models(member)


def _flat(schema: Json, described: Json, path: str, seen: frozenset[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the fields of a model and of those inside it, each with its path."""
    if path.count(".") >= _DEPTH:
        return
    for name in _models(schema):
        if name not in seen:
            yield from _flat(described["components"]["schemas"][name], described, path, seen | {name})
    for name, field in schema.get("properties", {}).items():
        inner = [each for each in _models(field) if each not in _DEFINITIONS]
        yield code(f"{path}{name}"), _words(field), field.get("description", "")
        listed = "[]" if _is_list(field) else ""
        for model in inner:
            if model not in seen and "properties" in described["components"]["schemas"][model]:
                yield from _flat(described["components"]["schemas"][model], described, f"{path}{name}{listed}.", seen | {model})


def _is_list(field: Json) -> bool:
    return field.get("type") == "array" or any(member.get("type") == "array" for member in field.get("anyOf", ()))


def _words(field: Json) -> str:
    """Return the type of a field; models are ``object``, for their fields stand below."""
    if "$ref" in field:
        return "text" if field["$ref"].endswith("/ErrorCode") else "object"
    members = [*field.get("anyOf", ()), *field.get("oneOf", ())]
    if members:
        return " or ".join(dict.fromkeys(map(_words, members)))
    if field.get("type") == "array":
        return f"list of {_words(field.get('items', {}))}"
    return type_of(field)


def _example(title: str, example: Any) -> str:
    """Return an example that is opened by a click."""
    is_text = isinstance(example, str)
    text = example if is_text else json.dumps(example, indent=2, ensure_ascii=False)
    return f'??? example "{title}"\n\n' + textwrap.indent(block("text" if is_text else "json", text), "    ")


def _title(tag: str) -> str:
    return {"sql": "SQL", "api keys": "API keys"}.get(tag, tag.capitalize())

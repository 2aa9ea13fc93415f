"""Collecting what is wrong with a definition: every fault, each with the pointer to its field and, where there is one, a suggestion."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from engine.definition.deliveries.delivery_list import DELIVERIES
from engine.definition.sources.connector_list import MODELS
from engine.errors import DefinitionInvalid, Problem
from engine.expressions.expressions import Scalar, compile_scalar
from engine.expressions.limits import MAX_PROBLEMS, MAX_PROBLEMS_READ
from engine.expressions.suggestions import hint, meant
from engine.expressions.types.types import Schema
from engine.expressions.values.operands import ExpressionInvalid

_CODES: Mapping[str, str] = {
    "missing": "field_missing",
    "extra_forbidden": "unknown_field",
    "string_pattern_mismatch": "malformed_name",
    "literal_error": "unknown_value",
    "union_tag_invalid": "unknown_value",
    "union_tag_not_found": "field_missing",
}


_OWN_CODES = ("too_many_", "expression", "malformed_name", "not_supported_yet")
"""Beginnings of the types that our own validators give (``engine.expressions.limits``): they are codes."""

_ENDED = f"Checking ended here, after {MAX_PROBLEMS} faults; there may be more once these are mended"

_TOO_MANY = "There are {count:,} faults, too many to list; compare what you send with the examples of /docs"

_WORDS: Mapping[str, str] = {
    "missing": "Is required",
    "model_type": "Must be a JSON object",
    "model_attributes_type": "Must be a JSON object",
    "dict_type": "Must be a JSON object",
    "list_type": "Must be a JSON array",
    "tuple_type": "Must be a JSON array",
    "string_type": "Must be a text",
    "string_too_short": "Must not be empty",
    "string_pattern_mismatch": "Lower case letters, digits and _, starting with a letter, at most 63",
    "bool_type": "Must be true or false",
    "bool_parsing": "Must be true or false",
    "int_type": "Must be a whole number",
    "int_parsing": "Must be a whole number",
    "int_from_float": "Must be a whole number",
}
"""What pydantic says in the words of Python."""

_MEMBERS = frozenset({*(("connector", name) for name in (*MODELS, *DELIVERIES)), ("start", "word"), ("start", "time")})
"""Where pydantic's location names the member of a union, which is no part of the user's definition."""


@dataclass(slots=True)
class Problems:
    """A list that grows while a definition is checked."""

    found: list[Problem] = field(default_factory=list)

    def add(self, pointer: str, code: str, detail: str) -> None:
        """Add a fault.

        Raises:
            DefinitionInvalid: there are as many as are listed; the last one says so.
        """
        self.found.append(Problem(pointer, code, detail))
        if len(self.found) == MAX_PROBLEMS:
            raise DefinitionInvalid([*self.found, Problem("", "too_many_problems", _ENDED)])

    def condition(self, pointer: str, text: str, schema: Schema) -> Scalar | None:
        """Compile an expression that must be boolean; on a fault add it and return None."""
        try:
            scalar = compile_scalar(text, schema)
        except ExpressionInvalid as error:
            self.add(pointer, error.code, error.detail)
            return None
        return scalar if self.is_condition(pointer, text, scalar) else None

    def is_condition(self, pointer: str, text: str, scalar: Scalar) -> bool:
        """Return whether an expression is boolean; add the fault where it is not."""
        if scalar.type.kind == "boolean":
            return True
        self.add(pointer, "type_mismatch", f"a condition is true or false; {text!r} is of type {scalar.type}")
        return False

    def raise_if_any(self) -> None:
        """Raise what was found.

        Raises:
            DefinitionInvalid: something was.
        """
        if self.found:
            raise DefinitionInvalid(self.found)


def pointer_of(path: tuple[str | int, ...]) -> str:
    """Return the RFC 6901 pointer of a path."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


@dataclass(frozen=True, slots=True)
class ShapeFault:
    """What pydantic found at one place.

    Attributes:
        path: inside the body.
        meant: of a field that there is not: the one that was most likely meant.
    """

    path: tuple[str | int, ...]
    code: str
    detail: str
    meant: str | None = None

    @property
    def problem(self) -> Problem:
        """The fault as definitions report it."""
        return Problem(pointer_of(self.path), self.code, self.detail[:1].upper() + self.detail[1:])


def problems_of(error: ValidationError, model: type[BaseModel] | None = None) -> list[Problem]:
    """Turn what pydantic found into problems with pointers, each once.

    Args:
        error: what was raised.
        model: what was read, so that unknown fields come with a suggestion.
    """
    return [fault.problem for fault in faults_of(error, model)]


def faults_of(error: ValidationError, model: type[BaseModel] | None = None) -> list[ShapeFault]:
    """Return what pydantic found, one fault for each place, up to ``MAX_PROBLEMS``; see ``problems_of``."""
    if error.error_count() > MAX_PROBLEMS_READ:
        return [ShapeFault((), "too_many_problems", _TOO_MANY.format(count=error.error_count()))]
    faults: dict[tuple[str | int, ...], ShapeFault] = {}
    for found in error.errors(include_url=False)[:MAX_PROBLEMS]:
        fault = _fault(found, model)
        faults.setdefault(fault.path, fault)
    if error.error_count() > MAX_PROBLEMS:
        faults[()] = ShapeFault((), "too_many_problems", _ENDED)
    return list(faults.values())


def _fault(found: ErrorDetails, model: type[BaseModel] | None) -> ShapeFault:
    kind, path = found["type"], _path_of(found["loc"])
    code = kind if kind.startswith(_OWN_CODES) else _CODES.get(kind, "invalid_value")
    detail = _WORDS.get(kind, found["msg"].removeprefix("Value error, "))
    if kind == "extra_forbidden":
        given, known = str(path[-1]), () if model is None else fields_at(model, path[:-1])
        return ShapeFault(path, code, f"there is no field `{given[:60]}` here{hint(given, known)}", meant(given, known))
    if kind == "literal_error":
        allowed = re.findall(r"'([^']*)'", found["ctx"]["expected"])
        near = meant(str(found["input"]), allowed)
        detail = f"must be one of {', '.join(allowed)}" + ("" if near is None else f"; did you mean {near}?")
    if "is no duration" in detail or "has no unit" in detail:
        code = "duration_malformed"
    if kind == "union_tag_invalid":
        path, allowed = (*path, "type"), re.findall(r"'([^']*)'", found["ctx"]["expected_tags"])
        detail = f"must be one of {', '.join(allowed)}{hint(found['ctx']['tag'], allowed).partition('; there')[0]}"
    return ShapeFault(path, code, detail)


def fields_at(model: type[BaseModel], path: tuple[str | int, ...]) -> tuple[str, ...]:
    """Return the fields that an object at this path of a body may have; of a union those of all its members."""
    schema = _schema_of(model)
    nodes = list(_objects(schema, schema))
    for part in path:
        below = [
            node.get("properties", {}).get(part, node.get("additionalProperties")) if isinstance(part, str) else node.get("items")
            for node in nodes
        ]
        nodes = [inner for node in below if isinstance(node, dict) for inner in _objects(node, schema)]
    return tuple(dict.fromkeys(name for node in nodes for name in node.get("properties", {})))


@lru_cache(maxsize=32)
def _schema_of(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()


def _objects(node: dict[str, Any], root: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what a schema's node stands for: what it refers to, each member of a union, or itself."""
    if "$ref" in node:
        yield from _objects(root["$defs"][node["$ref"].rsplit("/", 1)[1]], root)
    members = [*node.get("anyOf", ()), *node.get("oneOf", ())]
    for member in members:
        yield from _objects(member, root)
    if "$ref" not in node and not members:
        yield node


def _path_of(location: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Return the path inside the user's definition: pydantic adds the member of a union it tried, and marks keys of mappings."""
    path = location[:-1] if location[-1:] == ("[key]",) else location
    at = next((place for place in range(2) if path[place : place + 2] in _MEMBERS), None)
    return path if at is None else (*path[: at + 1], *path[at + 2 :])

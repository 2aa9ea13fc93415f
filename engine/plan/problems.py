"""Collecting what is wrong with a definition: every fault, each with the pointer to its field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import ValidationError

from engine.definition.expressions import Scalar, compile_scalar
from engine.definition.operands import ExpressionInvalid
from engine.definition.types import Schema
from engine.errors import DefinitionInvalid, Problem

_CODES: Mapping[str, str] = {
    "missing": "field_missing",
    "extra_forbidden": "unknown_field",
    "string_pattern_mismatch": "malformed_name",
    "literal_error": "unknown_value",
    "union_tag_invalid": "unknown_value",
    "union_tag_not_found": "field_missing",
}


_WORDS: Mapping[str, str] = {
    "missing": "Is required",
    "extra_forbidden": "There is no such field here",
    "model_type": "Must be a JSON object",
    "model_attributes_type": "Must be a JSON object",
    "dict_type": "Must be a JSON object",
    "list_type": "Must be a JSON array",
}
"""What pydantic says in the words of Python."""

_MEMBERS = frozenset({("connector", "log"), ("connector", "files"), ("start", "word"), ("start", "time")})
"""Where pydantic's location names the member of a union, which is no part of the user's definition."""


@dataclass(slots=True)
class Problems:
    """A list that grows while a definition is checked."""

    found: list[Problem] = field(default_factory=list)

    def add(self, pointer: str, code: str, detail: str) -> None:
        self.found.append(Problem(pointer, code, detail))

    def compile(self, pointer: str, text: str, schema: Schema) -> Scalar | None:
        """Compile an expression; on a fault add it and return None."""
        try:
            return compile_scalar(text, schema)
        except ExpressionInvalid as error:
            self.add(pointer, error.code, error.detail)
            return None

    def condition(self, pointer: str, text: str, schema: Schema) -> Scalar | None:
        """Compile an expression that must be boolean."""
        scalar = self.compile(pointer, text, schema)
        if scalar is not None and scalar.type.kind != "boolean":
            self.add(pointer, "type_mismatch", f"a condition is true or false; {text!r} is of type {scalar.type}")
            return None
        return scalar

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


def problems_of(error: ValidationError) -> list[Problem]:
    """Turn what pydantic found into problems with pointers, each once."""
    problems: dict[str, Problem] = {}
    for fault in error.errors(include_url=False):
        path = _path_of(fault["loc"])
        code = _CODES.get(fault["type"], "invalid_value")
        detail = _WORDS.get(fault["type"], fault["msg"].removeprefix("Value error, "))
        if "is no duration" in detail or "has no unit" in detail:
            code = "duration_malformed"
        if fault["type"] == "union_tag_invalid":
            path = (*path, "type")
            if fault["ctx"]["tag"] == "kafka":
                code, detail = "not_supported_yet", "reading Kafka comes later; use the built-in log or files"
        problem = Problem(pointer_of(path), code, detail[:1].upper() + detail[1:])
        problems.setdefault(problem.pointer, problem)
    return list(problems.values())


def _path_of(location: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Return the path inside the user's definition: pydantic adds the member of a union it tried, and marks keys of mappings."""
    path = location[:-1] if location[-1:] == ("[key]",) else location
    return (path[0], *path[2:]) if path[:2] in _MEMBERS else path

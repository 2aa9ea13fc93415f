"""The columns in a JSON Schema: for proposing columns, never for reading values, which the declared types validate.

JSON Schema restricts values and does not always name a type. A property without one gives no column; the caller may examine records.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

from engine.expressions.types.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIME,
    TIMESTAMP,
    ColumnType,
    check_field_name,
)
from engine.formats.shapes import MAX_DEPTH, SchemaNotRead
from engine.records.inferred import Fields

_TEXTS: Final[Mapping[str, ColumnType]] = {"date": DATE, "time": TIME, "date-time": TIMESTAMP}
"""By ``format``; texts of any other format stay texts."""

_CONNECT: Final[Mapping[str, ColumnType]] = {
    "int8": INT, "int16": INT, "int32": INT, "int64": BIGINT, "float32": DOUBLE, "float64": DOUBLE, "bytes": BYTES,
}  # fmt: skip
"""By ``connect.type``, by which Kafka Connect distinguishes types that JSON Schema does not have."""

_MOST_STEPS: Final = 10_000
"""The most schemas to examine: a few definitions that use each other twice would be millions."""


def fields_of_schema(text: str, references: Sequence[tuple[str, str]] = ()) -> Fields | None:
    """Return the properties of an object's schema, each with its type; None: the schema is not one of objects with named properties.

    Args:
        text: the schema.
        references: name and text of the schemas that it refers to.

    Raises:
        SchemaNotRead: a text is no JSON Schema, a reference has no target, or a definition contains itself.
    """
    looking = _Looking(dict(references), _loaded(text))
    schema = looking.resolved(looking.root, looking.root, ())
    return None if schema is None else looking.fields(*schema)


class _Looking:
    """Follows references through a schema.

    Attributes:
        root: the schema itself, in which references without a name are resolved.
    """

    def __init__(self, references: Mapping[str, str], root: Any) -> None:
        self.root = root
        self._references = references
        self._loaded: dict[str, Any] = {}
        self._steps = 0

    def fields(self, schema: dict[str, Any], root: Any, path: tuple[str, ...]) -> Fields | None:
        """Return the properties of a resolved schema."""
        properties = schema.get("properties")
        if not isinstance(properties, dict) or not properties:
            return None
        return [(name, self._type(each, root, path)) for name, each in properties.items()]

    def resolved(self, schema: Any, root: Any, path: tuple[str, ...]) -> tuple[dict[str, Any], Any, tuple[str, ...]] | None:
        """Follow references, and alternatives of which one is null; None: the schema does not restrict the value.

        Returns:
            The schema, the document in which its own references are resolved, and the references that led to it.
        """
        while True:
            self._steps += 1
            if self._steps > _MOST_STEPS or len(path) > MAX_DEPTH:
                raise SchemaNotRead(f"its definitions use each other more than {_MOST_STEPS} times, or deeper than {MAX_DEPTH}")
            if not isinstance(schema, dict):
                return None
            if isinstance(target := schema.get("$ref"), str):
                schema, root, step = self._referred(target, schema, root)
                if step in path:
                    raise SchemaNotRead(f"the definition {target!r} holds itself, which no column can; declare the columns")
                path = (*path, step)
                continue
            members = next((schema[word] for word in ("oneOf", "anyOf", "allOf") if isinstance(schema.get(word), list)), None)
            if members is None:
                return schema, root, path
            wanted = [each for each in members if not (isinstance(each, dict) and each.get("type") == "null")]
            if len(wanted) != 1:
                return None
            schema = wanted[0]

    def _type(self, schema: Any, root: Any, path: tuple[str, ...]) -> ColumnType | None:
        found = self.resolved(schema, root, path)
        if found is None:
            return None
        schema, root, path = found
        if isinstance(connect := schema.get("connect.type"), str) and connect in _CONNECT and "title" not in schema:
            return _CONNECT[connect]
        match _kind(schema):
            case "boolean":
                return BOOLEAN
            case "integer":
                return BIGINT
            case "number":
                return DOUBLE
            case "string" if schema.get("contentEncoding") == "base64":
                return BYTES
            case "string":
                return _TEXTS.get(str(schema.get("format")), STRING)
            case "array":
                element = self._type(schema.get("items"), root, path)
                return None if element is None else ColumnType("array", element=element)
            case "object":
                return self._object(schema, root, path)
        return None

    def _object(self, schema: dict[str, Any], root: Any, path: tuple[str, ...]) -> ColumnType | None:
        fields = self.fields(schema, root, path)
        if fields is None:
            value = self._type(schema.get("additionalProperties"), root, path)
            return None if value is None else ColumnType("map", key=STRING, value=value)
        known: list[tuple[str, ColumnType]] = []
        for name, declared in fields:
            if declared is None or not _is_name(name):
                return None
            known.append((name, declared))
        return ColumnType("struct", fields=tuple(known))

    def _referred(self, target: str, schema: dict[str, Any], root: Any) -> tuple[Any, Any, str]:
        """Return the target of a reference, its document, and a name for it that is the same at every use."""
        name, _, pointer = target.partition("#")
        if name and name not in (root.get("$id") if isinstance(root, dict) else None, ""):
            found = self._of_name(name, schema)
            root = found
        place: Any = root
        for part in pointer.split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if not isinstance(place, dict) or key not in place:
                raise SchemaNotRead(f"it refers to {target!r}, which is not there")
            place = place[key]
        return place, root, f"{id(root)}#{pointer}"

    def _of_name(self, name: str, schema: dict[str, Any]) -> Any:
        if name not in self._references:
            known = ", ".join(self._references) or "none"
            raise SchemaNotRead(f"it refers to {schema['$ref']!r}, and the registry says of its references: {known}")
        if name not in self._loaded:
            self._loaded[name] = _loaded(self._references[name])
        return self._loaded[name]


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaNotRead(f"it is no JSON: {str(error)[:100]}") from error


def _kind(schema: dict[str, Any]) -> str | None:
    """Return the one type that is not null, explicit or implied."""
    said = schema.get("type")
    if isinstance(said, list):
        wanted = [each for each in said if each != "null"]
        said = wanted[0] if len(wanted) == 1 else None
    if isinstance(said, str):
        return said
    if "properties" in schema:
        return "object"
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return "string" if values and all(isinstance(each, str) for each in values) else None


def _is_name(name: str) -> bool:
    try:
        check_field_name(name)
    except ValueError:
        return False
    return True

"""What models of definitions are made of: their base, names, and types as fields."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from engine.expressions.durations import format_duration
from engine.expressions.limits import FewFields
from engine.expressions.types.types import parse_type

NAME_PATTERN = r"^[a-z][a-z0-9_]{0,62}$"

Name = Annotated[str, Field(pattern=NAME_PATTERN, description="Lower case letters, digits and _, starting with a letter.")]


def usable(name: str) -> str:
    """Return the name of a column; raise `malformed_name` where it cannot be one."""
    is_reserved = name.startswith(("_", "$", "^")) or name == "*"
    if is_reserved or "." in name or '"' in name or not name.isprintable() or not 1 <= len(name.encode()) <= 63:
        detail = "column {name}: 1 to 63 printable bytes, without . and quotes, not * and not starting with _, $ or ^"
        raise PydanticCustomError("malformed_name", detail, {"name": repr(name)})
    return name


ColumnName = Annotated[str, AfterValidator(usable)]


def is_absent(value: object) -> bool:
    """Whether a field is left out where a definition is stored and shown: a version from before the field reads what is stored without it."""
    return value is None


class Model(FewFields):
    """Frozen, and unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Show durations by default as users write them; pydantic shows the milliseconds."""
        shown = handler(schema)
        for field in handler.resolve_ref_schema(shown).get("properties", {}).values():
            kinds = {field.get("type"), *(member.get("type") for member in field.get("anyOf", ()))}
            if "string" in kinds and isinstance(field.get("default"), int):
                field["default"] = format_duration(field["default"])
        return shown


def _readable(text: str) -> str:
    parse_type(text)
    return text


TypeText = Annotated[
    str,
    AfterValidator(_readable),
    Field(
        description="A column's type: boolean, int, bigint, double, decimal(p,s), string, bytes, date, time, timestamp, array<T>, …"
    ),
]

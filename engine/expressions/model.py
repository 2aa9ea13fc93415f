"""The base of every model of a definition."""

from __future__ import annotations

from pydantic import ConfigDict, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from engine.expressions.durations import format_duration
from engine.expressions.limits import FewFields


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

"""What relations, queries and columns may be called."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

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

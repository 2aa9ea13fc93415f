"""Names of statements: how letters fold, and what things are called in definitions."""

from __future__ import annotations

import re
from typing import Final

from engine.expressions.model import NAME_PATTERN
from engine.sql.tree import Identifier, Node, Text
from engine.statements.context.faults import StatementRefused, StatementUnsupported

ROWTIME: Final = "ROWTIME"
WINDOWSTART: Final = "WINDOWSTART"
WINDOWEND: Final = "WINDOWEND"
WINDOW_BOUNDS_OF_SQL: Final = (WINDOWSTART, WINDOWEND)
SYSTEM_COLUMNS: Final = frozenset({ROWTIME, "ROWPARTITION", "ROWOFFSET", *WINDOW_BOUNDS_OF_SQL})
"""What no column may be called: names that every relation has, or every windowed one."""

GENERATED: Final = "KSQL_COL"
"""Beginning of the name of a result column that is more than a column and got no name."""

_NAME = re.compile(NAME_PATTERN)


def folded(name: Identifier | Text) -> str:
    """Return a name as the catalog has it: in upper case unless it is quoted."""
    if isinstance(name, Text):
        return name.value
    return name.text if name.is_quoted else name.text.upper()


def definition_name(name: str, at: Node | None) -> str:
    """Return what definitions call a relation or a query of statements: in small letters, with _ for what is no letter and no digit.

    Raises:
        StatementUnsupported: they cannot.
    """
    found = lowered(name)
    if _NAME.fullmatch(found) is None:
        raise StatementUnsupported("name_not_supported", f"{name} cannot be a name here: it may have 63 characters", at)
    return found


def lowered(name: str) -> str:
    """Return a name in the letters of definitions. Whether it is too long is not asked."""
    found = re.sub(r"[^a-z0-9_]", "_", name.lower())
    return found if found[:1].isalpha() else f"r_{found}"


def alias_of(name: str, taken: set[str]) -> str:
    """Return what a definition calls an input; ``taken`` are the names that it cannot have."""
    lowered = name.lower()
    if _NAME.fullmatch(lowered) is not None and lowered not in taken:
        return lowered
    number = 1
    while f"input_{number}" in taken:
        number += 1
    return f"input_{number}"


def check_column_name(name: str, at: Node | None) -> None:
    """Refuse names that are taken by the system."""
    if name in SYSTEM_COLUMNS:
        raise StatementRefused(
            "reserved_column",
            f"{name} is what the system gives to every record or window: choose another name",
            at,
        )


class Numbered:
    """Names that are generated: ``KSQL_COL_0``, ``KSQL_COL_1`` …, and for fields ``NAME``, ``NAME_1`` …, past those that columns have.

    Args:
        columns: names of the columns of all inputs.
    """

    def __init__(self, columns: list[str]) -> None:
        self._used: dict[str, set[int]] = {}
        self._next: dict[str, int] = {}
        for column in columns:
            stem, number = _split(column)
            self._used.setdefault(stem, set()).add(number)

    def column(self) -> str:
        """Return the name of an expression."""
        return f"{GENERATED}_{self._number(GENERATED)}"

    def field(self, name: str) -> str:
        """Return the name of a column that is a struct's field."""
        stem, _ = _split(name)
        number = self._number(stem)
        return stem if number == 0 else f"{stem}_{number}"

    def _number(self, stem: str) -> int:
        number = self._next.get(stem, 0)
        while number in self._used.get(stem, set()):
            number += 1
        self._next[stem] = number + 1
        return number


def _split(name: str) -> tuple[str, int]:
    found = re.fullmatch(r"(.*?)(?:_(\d+))?", name, re.DOTALL)
    stem, number = (name, None) if found is None else found.groups()
    return stem, 0 if number is None else int(number)

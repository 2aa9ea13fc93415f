"""What the lists of functions, aggregates, operators and types have in common: arguments and examples as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

JsonValue = None | bool | int | float | str | Sequence["JsonValue"] | dict[str, "JsonValue"]


@dataclass(frozen=True)
class Argument:
    """One argument of a call.

    Attributes:
        type: what it may be, in words.
        is_optional: it may be left out.
        is_repeated: any number of them.
    """

    name: str
    type: str
    is_optional: bool = False
    is_repeated: bool = False


@dataclass(frozen=True)
class Example:
    """An expression of literals and what it gives, as JSON shows it; tests run it."""

    expression: str
    gives: JsonValue


@lru_cache(maxsize=256)
def arguments_of(text: str) -> tuple[Argument, ...]:
    """Read arguments as lists write them.

    >>> [(each.name, each.is_optional) for each in arguments_of("x: number, digits?: whole number")]
    [('x', False), ('digits', True)]
    """
    found = []
    for part in filter(None, text.split(", ")):
        name, _, kind = part.partition(": ")
        found.append(Argument(name.rstrip("?."), kind, name.endswith("?"), name.endswith("...")))
    return tuple(found)

"""What the lists of functions, aggregates, operators and types have in common: arguments and examples as values; and the list of types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

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


@dataclass(frozen=True)
class TypeForm:
    """One type.

    Attributes:
        form: how it is written.
        doc: what it holds.
        example: a value as JSON shows it.
    """

    form: str
    doc: str
    example: JsonValue


TYPES: Final[Sequence[TypeForm]] = (
    TypeForm("boolean", "true or false.", True),
    TypeForm("int", "A whole number of 32 bits.", 12),
    TypeForm(
        "bigint",
        "A whole number of 64 bits; beyond 2^53 it may be sent as text, and is answered so with `bigints=string`.",
        1357041600000,
    ),
    TypeForm("double", "A number with a floating point of 64 bits; finite.", 2.5),
    TypeForm(
        "decimal(12,2)", "An exact number: digits in all (1 to 38), and those behind the point. May be sent as text.", "12.50"
    ),
    TypeForm("string", "Text in Unicode, without the character U+0000.", "tea"),
    TypeForm("bytes", "Bytes, in base64.", "dGVh"),
    TypeForm("date", "A day.", "2013-01-31"),
    TypeForm("time", "A time of day, to the microsecond, without a zone.", "13:45:00"),
    TypeForm(
        "timestamp", "An instant, to the microsecond. Sent with any zone, kept and answered in UTC.", "2013-01-01T12:00:00Z"
    ),
    TypeForm("array<string>", "Values of one type, in order.", ["a", "b"]),
    TypeForm("map<string,int>", "Values by text.", {"a": 1}),
    TypeForm(
        "struct<name:string,count:int>",
        "Named fields; a name that is no plain word stands in quotes.",
        {"name": "tea", "count": 2},
    ),
)

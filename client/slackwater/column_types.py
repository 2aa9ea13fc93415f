"""The service's column types as texts: ``decimal(10,2)``, ``array<map<string,int>>``, ``struct<a:int,b:string>``."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_$]*|[0-9]+|`(?:[^`]|``)*`|\"(?:[^\"]|\"\")*\"|[<>(),:])")


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A type.

    Attributes:
        name: such as ``bigint``, ``decimal``, ``array``.
        numbers: precision and scale of a decimal.
        inner: types inside: of an array's elements, a map's keys and values, a struct's fields.
        names: of a struct's fields.
    """

    name: str
    numbers: tuple[int, int] = (38, 0)
    inner: tuple[ColumnType, ...] = ()
    names: tuple[str, ...] = ()


def parse_type(text: str) -> ColumnType:
    """Parse a type.

    Raises:
        ValueError: the text is not a type.
    """
    tokens: list[str] = _TOKEN.findall(text)
    found, rest = _type(tokens)
    if rest:
        raise ValueError(f"{text!r} is no column type")
    return found


def _type(tokens: list[str]) -> tuple[ColumnType, list[str]]:
    if not tokens:
        raise ValueError("a column type ends early")
    name, rest = tokens[0].lower(), tokens[1:]
    if name == "decimal" and rest[:1] == ["("]:
        close = rest.index(")")
        numbers = [int(token) for token in rest[1:close] if token not in {","}]
        return ColumnType(name, (numbers[0], numbers[1] if len(numbers) > 1 else 0)), rest[close + 1 :]
    if rest[:1] != ["<"]:
        return ColumnType(name), rest
    inner: list[ColumnType] = []
    names: list[str] = []
    rest = rest[1:]
    while True:
        if name == "struct":
            names.append(_unquoted(rest[0]))
            rest = rest[2:] if rest[1:2] == [":"] else rest[1:]
        one, rest = _type(rest)
        inner.append(one)
        if not rest:
            raise ValueError(f"{name} is not closed")
        closing, rest = rest[0], rest[1:]
        if closing == ">":
            return ColumnType(name, inner=tuple(inner), names=tuple(names)), rest


def _unquoted(word: str) -> str:
    quote = word[:1]
    return word[1:-1].replace(quote * 2, quote) if quote in '`"' else word

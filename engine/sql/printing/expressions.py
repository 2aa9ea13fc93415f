"""From a tree back to its canonical text: parsed again it gives the same tree. Kept state depends on each character (``state_fingerprint``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from engine.sql.tree import (
    AllFields,
    ArrayOf,
    Between,
    Binary,
    Boolean,
    Call,
    Case,
    Cast,
    Chain,
    Column,
    Element,
    Entry,
    Extract,
    Field,
    FieldType,
    FieldValue,
    Identifier,
    In,
    Is,
    Lambda,
    Like,
    MapOf,
    Negative,
    Node,
    Not,
    Null,
    Number,
    Parameter,
    Paren,
    Star,
    StructOf,
    Text,
    TypeName,
    When,
)


def show(node: Node) -> str:
    """Return the canonical text of a tree."""
    return _SHOWN[type(node)](node)


def quoted(name: str) -> str:
    """Return a name in quotes, so that it is read as it is."""
    return '"' + name.replace('"', '""') + '"'


def _negative(node: Negative) -> str:
    inner = show(node.operand)
    return f"- {inner}" if inner.startswith("-") else f"-{inner}"  # -- begins a comment


def _like(node: Like) -> str:
    sign = ("NOT " if node.is_negated else "") + ("LIKE" if node.is_case_sensitive else "ILIKE")
    ending = "" if node.escape is None else f" ESCAPE {show(node.escape)}"
    return f"{show(node.operand)} {sign} {show(node.pattern)}{ending}"


def _case(node: Case) -> str:
    subject = [] if node.subject is None else [show(node.subject)]
    default = [] if node.default is None else ["ELSE", show(node.default)]
    return " ".join(["CASE", *subject, *map(show, node.branches), *default, "END"])


def _type(node: TypeName) -> str:
    numbers = f"({', '.join(node.numbers)})" if node.numbers else ""
    inner = (*node.types, *node.fields)
    types = f"<{', '.join(map(show, inner))}>" if inner or node.name == "STRUCT" else ""
    return (quoted(node.name) if node.is_quoted else node.name) + numbers + types


def _listed(opening: str, parts: Iterable[Node], closing: str) -> str:
    return f"{opening}{', '.join(map(show, parts))}{closing}"


def _lambda(node: Lambda) -> str:
    names = ", ".join(map(show, node.parameters))
    return f"{names if len(node.parameters) == 1 else f'({names})'} => {show(node.body)}"


def _call(node: Call) -> str:
    return f"{show(node.name)}({'DISTINCT ' if node.is_distinct else ''}{', '.join(map(show, node.arguments))})"


def _qualified(table: Identifier | None, name: str) -> str:
    return name if table is None else f"{show(table)}.{name}"


_SHOWN: Final[dict[type[Node], Callable[[Any], str]]] = {
    Identifier: lambda node: quoted(node.text) if node.is_quoted else node.text,
    Column: lambda node: _qualified(node.table, show(node.name)),
    Star: lambda node: _qualified(node.table, "*"),
    Number: lambda node: node.text,
    Text: lambda node: "'" + node.value.replace("'", "''") + "'",
    Boolean: lambda node: str(node.value).upper(),
    Null: lambda _: "NULL",
    Paren: lambda node: f"({show(node.inner)})",
    Not: lambda node: f"NOT {show(node.operand)}",
    Negative: _negative,
    Chain: lambda node: f" {node.sign} ".join(map(show, node.operands)),
    Binary: lambda node: f"{show(node.left)} {node.sign} {show(node.right)}",
    Is: lambda node: f"{show(node.operand)} IS {show(node.wanted)}",
    Between: lambda node: f"{show(node.operand)} BETWEEN {show(node.low)} AND {show(node.high)}",
    In: lambda node: f"{show(node.operand)} IN ({', '.join(map(show, node.items))})",
    Like: _like,
    When: lambda node: f"WHEN {show(node.condition)} THEN {show(node.result)}",
    Case: _case,
    TypeName: _type,
    Cast: lambda node: f"CAST({show(node.operand)} AS {show(node.type)})",
    Extract: lambda node: f"EXTRACT({show(node.part)} FROM {show(node.operand)})",
    Call: _call,
    FieldType: lambda node: f"{show(node.name)} {show(node.type)}",
    Field: lambda node: f"{show(node.operand)}->{show(node.name)}",
    AllFields: lambda node: f"{show(node.operand)}->*",
    Element: lambda node: f"{show(node.operand)}[{show(node.index)}]",
    ArrayOf: lambda node: _listed("ARRAY[", node.items, "]"),
    Entry: lambda node: f"{show(node.key)} := {show(node.value)}",
    MapOf: lambda node: _listed("MAP(", node.entries, ")"),
    FieldValue: lambda node: f"{show(node.name)} := {show(node.value)}",
    StructOf: lambda node: _listed("STRUCT(", node.fields, ")"),
    Lambda: _lambda,
    Parameter: lambda node: "?" if node.name is None else f":{node.name}",
}

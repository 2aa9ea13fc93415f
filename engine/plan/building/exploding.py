"""Takes ``explode(array)`` out of a ``select``: what rows are made of, and what is selected of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from engine.definition.problems import pointer_of
from engine.expressions.library.function_list import EXPLODE
from engine.expressions.syntax import parse, render
from engine.expressions.types.types import Schema
from engine.expressions.values.operands import ExpressionInvalid
from engine.plan.building.scope import Checked, Scope, check_expression
from engine.sql.tree import Call, Column, Identifier, Node


@dataclass(frozen=True, slots=True)
class Exploded:
    """A ``select`` whose calls of ``explode`` have become columns.

    Attributes:
        texts: what is selected.
        arrays: column → the array whose elements it holds.
    """

    texts: Mapping[str, str]
    arrays: Mapping[str, Checked]

    @property
    def schema(self) -> Schema:
        """The columns that hold elements."""
        kinds = ((name, array.scalar.type.element) for name, array in self.arrays.items())
        return Schema(tuple((name, kind) for name, kind in kinds if kind is not None))

    @property
    def reads(self) -> frozenset[str]:
        """Columns that the arrays are made of."""
        return frozenset[str]().union(*(array.scalar.columns for array in self.arrays.values()))


def take_explosions(scope: Scope, wanted: Mapping[str, str], *, is_aggregating: bool) -> Exploded | None:
    """Take the calls out; None after adding problems. A text that cannot be parsed stays, for the later check."""
    texts = dict(wanted)
    arrays: dict[str, tuple[str, Checked]] = {}
    before = len(scope.problems.found)
    for name, text in wanted.items():
        calls = _calls(text)
        pointer = pointer_of(("select", name))
        if not calls or not _is_allowed(scope, calls, pointer, is_aggregating=is_aggregating):
            continue
        for call in calls:
            written = render(call.arguments[0])
            if written not in arrays:
                array = _array(scope, written, pointer)
                if array is not None:
                    arrays[written] = (f"${EXPLODE}{len(arrays)}", array)
        columns = {written: column for written, (column, _) in arrays.items()}
        texts[name] = render(parse(text).mapped(lambda node, columns=columns: _column(node, columns)))  # type: ignore[misc]
    return None if len(scope.problems.found) > before else Exploded(texts, dict(arrays.values()))


def _calls(text: str) -> list[Call]:
    if EXPLODE not in text.lower():
        return []
    try:
        return list(_explosions(parse(text)))
    except ExpressionInvalid:
        return []


def _explosions(tree: Node) -> Iterator[Call]:
    return (node for node in tree.walk() if isinstance(node, Call) and node.name.text == EXPLODE)


def _is_allowed(scope: Scope, calls: list[Call], pointer: str, *, is_aggregating: bool) -> bool:
    before = len(scope.problems.found)
    if scope.source.kind == "table" or is_aggregating or scope.definition.into.stream is None:
        scope.problems.add(
            pointer, "unsupported_option",
            f"{EXPLODE} makes several rows of a stream's record, for a stream that is not grouped; group or keep their last rows in a query "
            "behind it",
        )  # fmt: skip
    for call in calls:
        if len(call.arguments) != 1:
            scope.problems.add(
                pointer, "type_mismatch", f"{EXPLODE} takes 1 argument, not {len(call.arguments)}: {EXPLODE}(array)"
            )
        elif any(_explosions(call.arguments[0])):
            scope.problems.add(
                pointer, "not_a_scalar", f"{EXPLODE} inside {EXPLODE}: explode the inner arrays in a query behind this one"
            )
    return len(scope.problems.found) == before


def _array(scope: Scope, written: str, pointer: str) -> Checked | None:
    checked = check_expression(pointer, written, scope.schema(), scope.problems)
    if checked is not None and checked.scalar.type.kind != "array":
        scope.problems.add(pointer, "type_mismatch", f"{EXPLODE} takes an array; {written} is of type {checked.scalar.type}")
        return None
    return checked


def _column(node: Node, columns: Mapping[str, str]) -> Node | None:
    if not isinstance(node, Call) or node.name.text != EXPLODE:
        return None
    name = columns.get(render(node.arguments[0]))
    return None if name is None else Column(Identifier(name, is_quoted=True))

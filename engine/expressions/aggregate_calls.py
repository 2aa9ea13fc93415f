"""Aggregates as users write them, read against the columns that they aggregate: in `aggregate`, and written out in `having`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.expressions.aggregates.aggregates import AGGREGATE_NAMES, AggregateFunction, CallOptions, read_call, result_type
from engine.expressions.expressions import compile_tree, qualify
from engine.expressions.syntax import parse, render
from engine.expressions.types.types import BIGINT, ColumnType, Schema
from engine.expressions.values.operands import ExpressionInvalid
from engine.sql.tree import Call, Column, Identifier, Node


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """An aggregate as the plan needs it.

    Attributes:
        function: which aggregate.
        argument: canonical text of its argument over the schema, None for ``count(*)``.
        limit: the number behind the values, as k of ``top_k``, else None.
        type: of the result.
        options: what few calls have.
    """

    function: AggregateFunction
    argument: str | None
    limit: int | None
    type: ColumnType
    options: CallOptions | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        """Canonical texts of all values that it takes of each record."""
        first = () if self.argument is None else (self.argument,)
        return first if self.options is None else (*first, *self.options.further)


def parse_aggregate(text: str, schema: Schema) -> AggregateCall:
    """Read an aggregate such as ``count(*)``, ``count(distinct x)``, ``sum(a * b)`` or ``top_k(x, 3)``.

    Raises:
        ExpressionInvalid: as ``compile_scalar``, and ``not_supported_yet`` for aggregates of later releases.
    """
    written = read_call(parse(text))
    if written.argument is None:
        return AggregateCall(written.function, None, None, BIGINT)
    trees = (written.argument, *written.further)
    types = [compile_tree(tree, schema).type for tree in trees]
    argument, *further = (qualify(render(tree), schema) for tree in trees)
    options = CallOptions(tuple(further), written.fraction, written.keeps_nulls)
    given = None if options == CallOptions() else options
    return AggregateCall(written.function, argument, written.limit, result_type(written.function, types, written.limit), given)


def name_aggregates(text: str, schema: Schema, named: Mapping[str, AggregateCall]) -> str:
    """Return an expression over results with each aggregate in it replaced by the column that holds it, as ``count(*) > 0`` by ``n > 0``.

    Raises:
        ExpressionInvalid: as ``parse_aggregate``, and ``aggregate_unnamed`` where no column holds it.
    """

    def held(node: Node) -> Node | None:
        if not isinstance(node, Call) or node.name.text not in AGGREGATE_NAMES:
            return None
        written = render(node)
        call = parse_aggregate(written, schema)
        name = next((name for name, own in named.items() if own == call), None)
        if name is None:
            raise ExpressionInvalid(
                "aggregate_unnamed", f'no column holds {written}; add it to `aggregate`, as in "n": "{written}"'
            )
        return Column(Identifier(name, is_quoted=True))

    tree = parse(text)
    replaced = tree.mapped(held)
    return text if replaced == tree else render(replaced)

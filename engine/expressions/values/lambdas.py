"""Lambdas: TRANSFORM, FILTER and REDUCE over the elements of arrays and the entries of maps.

A lambda's body may name the columns of the row and the parameters of lambdas around it; a parameter hides a column of its name. It is compiled
like any expression, over a frame with a row for each element. Where it has no value for an element, the row it belongs to is counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import polars as pl

from engine.expressions.limits import (
    LAMBDA_STEP_CELLS,
    LAMBDA_STEP_TEXT_LISTS,
    LAMBDA_STEP_TEXTS,
    MADE_LIST_CELLS,
    MAX_LAMBDA_CELLS,
    MAX_REDUCED_BYTES,
    MAX_REDUCED_ELEMENTS,
)
from engine.expressions.types.types import BOOLEAN, STRING, ColumnType, Schema
from engine.expressions.values.compiling import Compiling, Scalar
from engine.expressions.values.evaluation_errors import GapReason
from engine.expressions.values.exploding import I64, Bools, Exploded, exploded, folded
from engine.expressions.values.nested import array_of, map_of, of_last_keys
from engine.expressions.values.once import repeated
from engine.expressions.values.operands import ExpressionInvalid, Operand, coerce, common_type
from engine.expressions.values.rebuilding import KEY, VALUE
from engine.expressions.values.text_limits import Room, holds_texts, is_cut, text_bytes
from engine.sql.tree import Lambda, Node

_START, _MARK, _BYTES = "$start", "$mark", "$bytes"
"""Columns of a reduction beside the parameters."""

_MAX_WIDENINGS: Final = 3
"""Of a state's type by what the lambda gives: int, bigint and double follow each other."""


@dataclass(frozen=True)
class Collection:
    """What a lambda goes over.

    Attributes:
        name: of the function, for messages.
        lists: the arrays or maps.
        kind: their type.
    """

    name: str
    lists: pl.Expr
    kind: ColumnType

    def elements(self, names: Sequence[str], given: Exploded) -> dict[str, pl.Series]:
        """Return the elements as columns of parameters: an array's, or the keys and the values of a map."""
        if self.kind.kind == "array":
            return {names[0]: given.values}
        return dict(zip(names, (given.values.struct.field(KEY), given.values.struct.field(VALUE)), strict=True))


@dataclass(frozen=True)
class Body:
    """A compiled lambda.

    Attributes:
        names: of its parameters.
        scalar: what it gives.
        beside: columns of the row that it reads.
        reads_lists: some of these hold nested values, which stand beside each element.
    """

    names: tuple[str, ...]
    scalar: Scalar
    beside: Mapping[str, pl.Expr]
    reads_lists: bool

    @property
    def marks(self) -> Mapping[GapReason, pl.Expr]:
        """Where it has no value to give, by reason."""
        found: dict[GapReason, pl.Expr] = {}
        for gap in self.scalar.gaps:
            found[gap.reason] = found[gap.reason] | gap.is_met if gap.reason in found else gap.is_met
        return found

    def values(self, given: Exploded, over: Collection) -> pl.Series:
        """Compute it for each element; NULL of those that are lost."""
        return self.over(given, over, self.scalar.expr, Room(given) if holds_texts(self.scalar.type) else None)

    def over(self, given: Exploded, over: Collection, wanted: pl.Expr, room: Room | None = None) -> pl.Series:
        """Compute an expression of it for each element; NULL of those that are lost, or find no room."""
        elements, rows = over.elements(self.names, given), given.rows
        parts, computed = [], []
        for places in self._steps(given, rows):
            left = places if room is None else places[room.is_left(rows[places])]
            taken = elements if len(left) == len(rows) else {name: values.gather(left) for name, values in elements.items()}
            made = given.frame(taken, rows[left]).select(wanted).to_series()
            if room is not None and not (is_kept := room.takes(made, rows[left])).all():
                made, left = made.filter(pl.Series(is_kept)), left[is_kept]
            parts.append(made)
            computed.append(left)
        order = np.concatenate(computed)
        if len(order) == len(rows):
            return pl.concat(parts)
        found = np.full(len(rows), -1)
        found[order] = np.arange(len(order))
        return pl.concat(parts).gather(pl.Series(found).set(pl.Series(found < 0), None))

    @property
    def may_lengthen(self) -> bool:
        """Whether it may make a text that is longer than what it is made of."""
        return any(gap.reason == "text_too_long" for gap in self.scalar.gaps)

    def _steps(self, given: Exploded, rows: I64) -> list[I64]:
        """Return the places of the elements that are not lost, cut so that what is in memory at once is bounded."""
        if not (self.may_multiply or self.may_lengthen) or not len(rows):
            return [np.arange(len(rows))]
        is_lost, weights = self._lost(given) if self.may_multiply else (np.zeros(len(rows), np.bool_), np.int64(1))
        if self.may_lengthen:
            at_once = LAMBDA_STEP_TEXT_LISTS if self.may_multiply else LAMBDA_STEP_TEXTS
            weights = np.maximum(weights, LAMBDA_STEP_CELLS // at_once)
        kept = np.flatnonzero(~is_lost)
        steps = np.cumsum(np.broadcast_to(weights, is_lost.shape)[kept]) // LAMBDA_STEP_CELLS
        return np.split(kept, np.flatnonzero(np.diff(steps)) + 1)

    @property
    def may_multiply(self) -> bool:
        """Whether it may look at, or make, many values for one element."""
        return self.scalar.makes_lists or self.reads_lists

    def lost(self, given: Exploded) -> pl.Series:
        """Return the elements that are not computed: those in front cost too much together."""
        return pl.Series(self._lost(given)[0])

    def _lost(self, given: Exploded) -> tuple[Bools, I64]:
        """Return which elements are lost, and the weight of each."""
        weights = np.repeat(given.weights() + (MADE_LIST_CELLS if self.scalar.makes_lists else 0), given.sizes)
        firsts = np.repeat(np.cumsum(given.sizes) - given.sizes, given.sizes)
        return (np.arange(len(firsts)) - firsts + 1) * weights > MAX_LAMBDA_CELLS, weights


def transform(compiler: Compiling, nodes: Sequence[Node]) -> Operand:
    """Compile ``transform(array, x => …)`` and ``transform(map, (k, v) => key, (k, v) => value)``."""
    over = _collection(compiler, "transform", nodes[0])
    if over.kind.kind == "map":
        return _transform_map(compiler, over, nodes[1:])
    (body,) = _bodies(compiler, over, nodes[1:], 1)
    kind = array_of(body.scalar.type)

    def built(given: Exploded) -> pl.Series:
        return given.listed(body.values(given, over))

    made = exploded(over.lists, body.beside, built, kind.polars)
    _note_cut(compiler, over, made, body.scalar.type)
    return Operand(made, kind)


def _transform_map(compiler: Compiling, over: Collection, nodes: Sequence[Node]) -> Operand:
    keys, values = _bodies(compiler, over, nodes, 2)
    if keys.scalar.type != STRING:
        raise ExpressionInvalid(
            "type_mismatch", f"transform: a map's keys are strings, not {keys.scalar.type}; use CAST(… AS string)"
        )
    kind = map_of(values.scalar.type)

    def built(given: Exploded) -> pl.Series:
        key, value = (body.values(given, over) for body in (keys, values))
        return given.listed(pl.DataFrame([key.alias(KEY), value.alias(VALUE)]).to_struct(""))

    made = exploded(over.lists, {**keys.beside, **values.beside}, built, kind.polars)
    for part, body in ((KEY, keys), (VALUE, values)):
        _note_cut(compiler, over, made.list.eval(pl.element().struct.field(part)), body.scalar.type)
    return Operand(of_last_keys(made), kind)


def _note_cut(compiler: Compiling, over: Collection, made: pl.Expr, kind: ColumnType) -> None:
    """Count the records whose elements made more texts than there is room for."""
    if holds_texts(kind):
        both = pl.struct(over.lists.alias("lists"), made.alias("made"))

        def met(given: pl.Series) -> pl.Series:
            return is_cut(given.struct.field("lists"), given.struct.field("made"))

        compiler.gaps.add("text_too_long", both.map_batches(met, return_dtype=pl.Boolean(), is_elementwise=True))


def filtered(compiler: Compiling, nodes: Sequence[Node]) -> Operand:
    """Compile ``filter(array, x => …)`` and ``filter(map, (k, v) => …)``: what the lambda is true for."""
    over = _collection(compiler, "filter", nodes[0])
    (body,) = _bodies(compiler, over, nodes[1:], 1)
    if body.scalar.type != BOOLEAN:
        raise ExpressionInvalid("type_mismatch", f"filter needs a lambda that is true or false, not {body.scalar.type}")

    def built(given: Exploded) -> pl.Series:
        return given.filtered(body.over(given, over, body.scalar.expr))

    return Operand(exploded(over.lists, body.beside, built, over.kind.polars), over.kind)


def reduced(compiler: Compiling, nodes: Sequence[Node]) -> Operand:
    """Compile ``reduce(array, start, (s, x) => …)`` and ``reduce(map, start, (s, k, v) => …)``.

    A start of NULL gives NULL, and an array or map that is NULL the start. NULL of more than ``MAX_REDUCED_ELEMENTS`` elements, and of more than
    ``MAX_REDUCED_BYTES`` of texts on the way.
    """
    over = _collection(compiler, "reduce", nodes[0])
    start = compiler.compile(nodes[1])
    if start.type is None:
        raise ExpressionInvalid(
            "type_mismatch", "reduce: the type of its start is unknown; write CAST(NULL AS string) or another type"
        )
    kind, body = _of_state(compiler, over, nodes[2], start.type)
    next_state = coerce(Operand(body.scalar.expr, body.scalar.type), kind, "reduce")
    beside = {**body.beside, _START: repeated(coerce(start, kind, "reduce"))}

    is_bounded = body.may_lengthen and holds_texts(kind)

    def fold(given: Exploded, marks: pl.Expr | None) -> pl.DataFrame:
        """Return the last states, and where a mark was met on the way."""
        starts = given.beside.select(
            pl.col(_START).alias(body.names[0]), pl.lit(value=False).alias(_MARK), pl.lit(0, pl.Int64).alias(_BYTES)
        )
        is_short = starts.to_series().is_not_null().to_numpy() & (given.sizes <= MAX_REDUCED_ELEMENTS)
        met = pl.col(_MARK) if marks is None else pl.col(_MARK) | marks

        def following(frame: pl.DataFrame) -> pl.DataFrame:
            made = frame.select(next_state.alias(body.names[0]), met.alias(_MARK), _BYTES)
            return made.with_columns(pl.col(_BYTES) + text_bytes(made.to_series())) if is_bounded else made

        def step(frame: pl.DataFrame) -> pl.DataFrame | None:
            is_over = frame[_BYTES] > MAX_REDUCED_BYTES
            if not is_over.any():
                return following(frame)
            if is_over.all():
                return None
            ended = frame.filter(is_over).select(pl.lit(None, kind.polars).alias(body.names[0]), _MARK, _BYTES)
            back = np.argsort(np.argsort(is_over.to_numpy(), kind="stable"))
            return pl.concat([following(frame.filter(~is_over)), ended])[back]

        last = folded(given, np.where(is_short, given.sizes, 0), starts, over.elements(body.names[1:], given), step)
        return last.with_columns(pl.when(pl.Series(is_short) & (last[_BYTES] <= MAX_REDUCED_BYTES)).then(pl.col(body.names[0])))

    def is_met(given: Exploded, mark: pl.Expr, *, by_bytes: bool) -> pl.Series:
        last = fold(given, mark)
        return last[_MARK] | (last[_BYTES] > MAX_REDUCED_BYTES) if by_bytes else last[_MARK]

    for reason, mark in body.marks.items():
        counted = partial(is_met, mark=mark, by_bytes=reason == "text_too_long" and is_bounded)
        compiler.gaps.add(reason, exploded(over.lists, beside, counted, BOOLEAN.polars))
    compiler.gaps.add("list_too_long", over.lists.list.len() > MAX_REDUCED_ELEMENTS)
    return Operand(exploded(over.lists, beside, lambda given: fold(given, None).to_series(), kind.polars), kind)


def _of_state(compiler: Compiling, over: Collection, node: Node, start: ColumnType) -> tuple[ColumnType, Body]:
    """Compile the lambda of a reduction over states of a type that holds both the start and what it gives."""
    kind = start
    for _ in range(_MAX_WIDENINGS):
        body = _body(compiler, over, node, (kind, *_parts(over)))
        wider = common_type([Operand(pl.lit(None), kind), Operand(pl.lit(None), body.scalar.type)], "reduce")
        if wider is None or wider == kind:
            return kind, body
        kind = wider
    raise ExpressionInvalid(
        "type_mismatch",
        f"reduce: of a state that is {start} the lambda gives {body.scalar.type}; CAST what it gives to the start's type",
    )


def _collection(compiler: Compiling, name: str, node: Node) -> Collection:
    held = compiler.compile(node)
    if held.type is None or held.type.kind not in ("array", "map"):
        raise ExpressionInvalid("type_mismatch", f"{name} goes over an array or a map, not {held.kind}")
    return Collection(name, repeated(held.expr), held.type)


def _parts(over: Collection) -> tuple[ColumnType, ...]:
    """Return the types of the parameters that stand for an element, or for a key and a value."""
    return over.kind.inner


def _bodies(compiler: Compiling, over: Collection, nodes: Sequence[Node], count: int) -> list[Body]:
    if len(nodes) != count:
        wanted = "one lambda" if count == 1 else "two lambdas, for the key and for the value"
        raise ExpressionInvalid("type_mismatch", f"{over.name} of {over.kind} takes {wanted}, not {len(nodes)}")
    bodies = [_body(compiler, over, node, _parts(over)) for node in nodes]
    for body in bodies:
        for reason, mark in body.marks.items():

            def met(given: Exploded, body: Body = body, mark: pl.Expr = mark) -> pl.Series:
                return given.any_of(body.over(given, over, mark))

            compiler.gaps.add(reason, exploded(over.lists, body.beside, met, BOOLEAN.polars))
        if body.may_multiply:

            def lost(given: Exploded, body: Body = body) -> pl.Series:
                return given.any_of(body.lost(given))

            compiler.gaps.add("list_too_long", exploded(over.lists, body.beside, lost, BOOLEAN.polars))
    return bodies


def _body(compiler: Compiling, over: Collection, node: Node, types: Sequence[ColumnType]) -> Body:
    """Compile a lambda whose parameters have these types."""
    given = node.bare
    if not isinstance(given, Lambda):
        raise ExpressionInvalid("type_mismatch", f"{over.name} takes a lambda here, as in x => x + 1")
    names = tuple(name.text for name in given.parameters)
    if len(names) != len(types):
        raise ExpressionInvalid(
            "type_mismatch", f"the lambda of {over.name} over {over.kind} has {len(types)} parameter(s), not {len(names)}"
        )
    for name in names:
        if names.count(name) > 1 or "." in name or name in (_START, _MARK, _BYTES, "*") or name.startswith("^"):
            raise ExpressionInvalid(
                "expression_malformed", f"a lambda's parameter cannot be called {name[:60]!r} here; rename it"
            )
    around = tuple((name, kind) for name, kind in compiler.schema.items() if name not in names)
    scalar = compiler.compile_inside(given.body, Schema((*around, *zip(names, types, strict=True))))
    outer = sorted(scalar.columns - {*names})
    compiler.columns.update(outer)
    reads_lists = any(compiler.schema[name].is_nested for name in outer)
    return Body(names, scalar, {name: pl.col(name) for name in outer}, reads_lists)

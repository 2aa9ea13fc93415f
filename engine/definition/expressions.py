"""From the text of an expression to a typed Polars expression: names resolved, types inferred, nothing passed through.

Semantics are SQL's: NULL is unknown, AND and OR are three-valued, a comparison with NULL is NULL. A timestamp meets a text
written out beside it (``ts >= '2013-01-01'``), numbers meet in the wider type. What a value cannot give (1/0, a text that is no
number, a bigint overflow) is NULL: see ``operands`` and ``arithmetic``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

import polars as pl
from sqlglot import exp

from engine.definition import arithmetic, functions, texts
from engine.definition.aggregates import AGGREGATE_NAMES
from engine.definition.choosing import all_null, chosen, none_of, undecided
from engine.definition.function_list import call, function_of
from engine.definition.gaps import Gap, Gaps
from engine.definition.once import once
from engine.definition.operands import (
    ExpressionInvalid,
    Operand,
    cast,
    coerce,
    coerce_all,
    null,
    number_literal,
    text_literal,
)
from engine.definition.patterns import like
from engine.definition.suggestions import hint, meant
from engine.definition.syntax import described, flatten, parse, render
from engine.definition.types import BOOLEAN, STRING, ColumnType, Schema, parse_type

__all__ = [
    "ExpressionInvalid", "Scalar", "columns_of", "compile_scalar", "compile_tree", "qualify", "resolve",
]  # fmt: skip

_TYPE_NAMES = {
    "text": "string", "varchar": "string", "char": "string", "integer": "int", "long": "bigint", "float": "double",
    "real": "double", "double precision": "double", "bool": "boolean", "numeric": "decimal", "timestamptz": "timestamp",
    "datetime": "timestamp", "varbinary": "bytes", "binary": "bytes",
}  # fmt: skip
"""SQL's own names of our types, as sqlglot writes them."""


@dataclass(frozen=True)
class Scalar:
    """A compiled expression: one value per row.

    Attributes:
        expr: yields exactly as many rows as the frame has, also where it names no column.
        columns: the names of the schema that it reads.
        gaps: where it gives NULL because there is no value to give.
        is_strict: each gap makes the whole expression NULL.
    """

    expr: pl.Expr
    type: ColumnType
    columns: frozenset[str]
    gaps: tuple[Gap, ...] = ()
    is_strict: bool = True


@lru_cache(maxsize=1_024)
def compile_scalar(text: str, schema: Schema) -> Scalar:
    """Compile a scalar expression against a schema.

    ``a.b`` names the column "a.b"; a bare ``b`` the column "b", or the only column "*.b"; letter case counts.

    Raises:
        ExpressionInvalid: expression_malformed, unknown_column, ambiguous_column, unknown_function, type_mismatch or
            not_a_scalar.
    """
    return compile_tree(parse(text), schema)


def compile_tree(tree: exp.Expr, schema: Schema) -> Scalar:
    """Compile a tree that ``syntax.parse`` made. Raises ExpressionInvalid."""
    compiler = _Compiler(schema)
    try:
        operand = compiler.compile(tree)
    except RecursionError as error:
        raise ExpressionInvalid("expression_malformed", "the expression is nested too deeply") from error
    if operand.type is None:
        raise ExpressionInvalid("type_mismatch", "the type of this NULL is unknown; write CAST(NULL AS string) or another type")
    expr = operand.expr
    if not compiler.columns:
        # A lone literal has one row whatever the frame's height; repeated, it has as many as the frame.
        expr = pl.repeat(expr, pl.len(), dtype=operand.type.polars)
    gaps = compiler.gaps.of(operand, sorted(compiler.columns))
    return Scalar(expr, operand.type, frozenset(compiler.columns), gaps, compiler.gaps.is_strict)


def resolve(column: exp.Column, schema: Schema) -> str:
    """Return the schema's name of a column reference.

    Raises:
        ExpressionInvalid: ``unknown_column`` or ``ambiguous_column``.
    """
    name = f"{column.table}.{column.name}" if column.table else column.name
    if name in schema:
        return name
    if not column.table:
        found = schema.qualified(name)
        if len(found) == 1:
            return found[0]
        if found:
            raise ExpressionInvalid("ambiguous_column", f"{name} may be {' or '.join(found)}; write which")
    near = meant(name, [*schema.names, *(known.partition(".")[2] or known for known in schema)])
    ending = hint(name, schema.names) if near is None else f"; did you mean {near}?"
    raise ExpressionInvalid("unknown_column", f"there is no column {name[:80]}{ending}")


def columns_of(text: str, schema: Schema) -> frozenset[str]:
    """Return the schema's names of the columns that an expression reads, without compiling it. Raises ExpressionInvalid."""
    return frozenset(resolve(node, schema) for node in parse(text).find_all(exp.Column))


def qualify(written: str | exp.Expr, schema: Schema, rename: Callable[[str], tuple[str | None, str]] | None = None) -> str:
    """Return the canonical text of an expression: every column by its full name in ``schema``, quoted.

    Args:
        written: an expression that compiles against ``schema``, or its tree, which is changed.
        schema: names and types.
        rename: from a name of the schema to (alias, column) as it shall be written; by default the name itself, split at its dot.

    Raises:
        ExpressionInvalid: the expression does not parse, or names an unknown column.
    """
    tree = parse(written) if isinstance(written, str) else written
    for node in list(tree.find_all(exp.Column)):
        name = resolve(node, schema)
        alias, column = rename(name) if rename is not None else split(name)
        node.set("this", exp.to_identifier(column, quoted=True))
        node.set("table", None if alias is None else exp.to_identifier(alias, quoted=True))
    return render(tree)


def split(name: str) -> tuple[str | None, str]:
    """Return (alias, column) of a qualified name, (None, name) of a bare one."""
    alias, dot, column = name.partition(".")
    return (alias, column) if dot else (None, name)


@dataclass
class _Compiler:
    """One walk over one tree; gathers the columns it meets."""

    schema: Schema
    columns: set[str] = field(default_factory=set)
    gaps: Gaps = field(default_factory=Gaps)

    def compile(self, node: exp.Expr) -> Operand:
        build = _BUILDERS.get(type(node))
        if build is None:
            raise ExpressionInvalid("not_a_scalar", f"{described(node, render(node))} is not a value here")
        self.gaps.is_strict &= type(node) in _STRICT
        return build(self, node)

    def child(self, node: exp.Expr, name: str) -> Operand:
        value: exp.Expr = node.args[name]
        return self.compile(value)

    def condition(self, node: exp.Expr, where: str) -> pl.Expr:
        return coerce(self.compile(node), BOOLEAN, where)

    def column(self, node: exp.Expr) -> Operand:
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            raise ExpressionInvalid("not_a_scalar", "* stands for many columns; name one")
        name = resolve(node, self.schema)
        if name == "*" or (name.startswith("^") and name.endswith("$")):
            # Polars reads these as "all columns" and as a regex over column names.
            raise ExpressionInvalid("expression_malformed", f"a column called {name!r} cannot be used in expressions; rename it")
        self.columns.add(name)
        return Operand(pl.col(name), self.schema[name])

    def literal(self, node: exp.Expr) -> Operand:
        text: str = node.args["this"]
        return text_literal(text) if node.args["is_string"] else number_literal(text)

    def boolean(self, node: exp.Expr) -> Operand:
        return Operand(pl.lit(node.args["this"], dtype=pl.Boolean), BOOLEAN)

    def negation(self, node: exp.Expr) -> Operand:
        return Operand(~self.condition(node.args["this"], "NOT"), BOOLEAN)

    def chain(self, node: exp.Expr) -> Operand:
        is_and = isinstance(node, exp.And)
        parts: list[pl.Expr] = []
        for part in flatten(node):
            with self.gaps.where(partial(undecided, parts, is_and=is_and)):
                parts.append(self.condition(part, "AND" if is_and else "OR"))
        return Operand(pl.all_horizontal(parts) if is_and else pl.any_horizontal(parts), BOOLEAN)

    def comparison(self, node: exp.Expr) -> Operand:
        sign, build = _COMPARISONS[type(node)]
        return self.compare(sign, build, self.child(node, "this"), self.child(node, "expression"))

    def compare(self, sign: str, build: Callable[[pl.Expr, pl.Expr], pl.Expr], left: Operand, right: Operand) -> Operand:
        for side in (left, right):
            if side.type is not None and side.type.is_nested:
                raise ExpressionInvalid("type_mismatch", f"{side.kind} cannot be compared")
        (a, b), kind = coerce_all([left, right], sign)
        if kind is None and sign not in ("IS DISTINCT FROM", "IS NOT DISTINCT FROM"):
            return Operand(pl.lit(None, dtype=pl.Boolean), BOOLEAN)
        return Operand(build(a, b), BOOLEAN)

    def is_test(self, node: exp.Expr) -> Operand:
        wanted = node.args["expression"]
        if isinstance(wanted, exp.Null):
            return Operand(self.child(node, "this").expr.is_null(), BOOLEAN)
        if isinstance(wanted, exp.Boolean):
            value = self.condition(node.args["this"], "IS")
            return Operand(value.eq_missing(pl.lit(wanted.args["this"])), BOOLEAN)
        raise ExpressionInvalid("expression_malformed", "IS is followed by NULL, NOT NULL, TRUE or FALSE")

    def between(self, node: exp.Expr) -> Operand:
        def build(value: Operand, low: Operand, high: Operand) -> pl.Expr:
            above = self.compare("BETWEEN", pl.Expr.ge, value, low)
            return above.expr & self.compare("BETWEEN", pl.Expr.le, value, high).expr

        return Operand(_once(build, *(self.child(node, name) for name in ("this", "low", "high"))), BOOLEAN)

    def is_in(self, node: exp.Expr) -> Operand:
        value = self.child(node, "this")
        items = [self.compile(item) for item in node.args["expressions"]]
        if not items:
            raise ExpressionInvalid("expression_malformed", "IN needs at least one value")

        def build(sought: Operand, *listed: Operand) -> pl.Expr:
            return pl.any_horizontal([self.compare("IN", pl.Expr.eq, sought, item).expr for item in listed])

        return Operand(_once(build, value, *items), BOOLEAN)

    def pattern(self, node: exp.Expr) -> Operand:
        escape: str | None = None
        if isinstance(node, exp.Escape):
            mark = self.child(node, "expression").literal
            if not isinstance(mark, str) or not isinstance(node.this, (exp.Like, exp.ILike)):
                raise ExpressionInvalid("expression_malformed", "ESCAPE belongs to LIKE and takes a text")
            escape, node = mark, node.this
        value = coerce(self.child(node, "this"), STRING, "LIKE")
        text = self.child(node, "expression").literal
        if not isinstance(text, str):
            raise ExpressionInvalid("type_mismatch", "LIKE needs its pattern written out, as in 'AB%'; or use contains(a, b)")
        matches = like(value, text, escape, is_case_sensitive=isinstance(node, exp.Like))
        return Operand(~matches if node.args.get("negate") else matches, BOOLEAN)

    def arithmetic(self, node: exp.Expr) -> Operand:
        sign, left, right = _ARITHMETIC[type(node)], self.child(node, "this"), self.child(node, "expression")
        result = arithmetic.binary(sign, left, right)
        self.gaps.after_arithmetic(sign, left, right, result)
        return result

    def negative(self, node: exp.Expr) -> Operand:
        value = self.child(node, "this")
        result = arithmetic.negate(value)
        self.gaps.after_negation(value, result)
        return result

    def joined_text(self, node: exp.Expr) -> Operand:
        parts = []
        for part in flatten(node):
            operand = self.compile(part)
            if operand.type not in (None, STRING):
                raise ExpressionInvalid("type_mismatch", f"|| joins texts, not {operand.kind}; use CAST(… AS string)")
            parts.append(coerce(operand, STRING, "||"))
        self.gaps.add("text_too_long", texts.is_joined_too_long(parts, passes_nulls=False))
        return Operand(texts.joined(parts, passes_nulls=False), STRING)

    def case(self, node: exp.Expr) -> Operand:
        subject = None if node.args.get("this") is None else self.child(node, "this")
        conditions: list[pl.Expr] = []
        compared: list[Operand] = []
        values: list[Operand] = []
        for branch in node.args["ifs"]:
            with self.gaps.where(partial(none_of, conditions)):
                if subject is None:
                    condition = self.condition(branch.args["this"], "WHEN")
                else:
                    compared.append(self.child(branch, "this"))
                    condition = self.compare("CASE", pl.Expr.eq, subject, compared[-1]).expr
                with self.gaps.where(condition):
                    values.append(self.child(branch, "true"))
            conditions.append(condition)
        with self.gaps.where(partial(none_of, conditions)):
            values.append(null() if node.args.get("default") is None else self.child(node, "default"))
        results, kind = coerce_all(values, "CASE")
        if subject is None:
            return Operand(chosen(conditions, results), kind)
        branches = [Operand(result, kind) for result in results]

        def build(sought: Operand, *parts: Operand) -> pl.Expr:
            equal = [self.compare("CASE", pl.Expr.eq, sought, part).expr for part in parts[: len(compared)]]
            return chosen(equal, [part.expr for part in parts[len(compared) :]])

        return Operand(_once(build, subject, *compared, *branches), kind)

    def cast(self, node: exp.Expr) -> Operand:
        written = render(node.args["to"]).lower()
        head, bracket, rest = written.partition("(")
        known = _TYPE_NAMES.get(head.strip(), head.strip())
        try:
            target = parse_type(known if known == "string" else known + bracket + rest)
        except ValueError as error:
            raise ExpressionInvalid("type_mismatch", f"CAST: {error}") from error
        value = self.child(node, "this")
        result = cast(value, target)
        self.gaps.after_cast(value, result)
        return result

    def extract(self, node: exp.Expr) -> Operand:
        return functions.extract(node.args["this"].name, self.child(node, "expression"))

    def call(self, node: exp.Expr) -> Operand:
        name = node.name.lower()
        if name in AGGREGATE_NAMES:
            raise ExpressionInvalid("not_a_scalar", f"{name} is an aggregate; it belongs into `aggregate`")
        function = function_of(node.name)
        arguments: list[Operand] = []
        for argument in node.expressions:
            with self.gaps.where(partial(all_null, arguments if function.is_lazy else ())):
                arguments.append(self.compile(argument))
        result = call(function, arguments)
        if function.gaps is not None:
            function.gaps(self.gaps, arguments, result)
        return result


def _once(build: Callable[..., pl.Expr], *operands: Operand) -> pl.Expr:
    """Return ``build(*operands)``, each operand computed once."""

    def of(*parts: pl.Expr) -> pl.Expr:
        return build(*(replace(operand, expr=part) for operand, part in zip(operands, parts, strict=True)))

    return once(of, *(operand.expr for operand in operands))


_COMPARISONS: dict[type[exp.Expr], tuple[str, Callable[[pl.Expr, pl.Expr], pl.Expr]]] = {
    exp.EQ: ("=", pl.Expr.eq),
    exp.NEQ: ("<>", pl.Expr.ne),
    exp.LT: ("<", pl.Expr.lt),
    exp.LTE: ("<=", pl.Expr.le),
    exp.GT: (">", pl.Expr.gt),
    exp.GTE: (">=", pl.Expr.ge),
    exp.NullSafeEQ: ("IS NOT DISTINCT FROM", pl.Expr.eq_missing),
    exp.NullSafeNEQ: ("IS DISTINCT FROM", pl.Expr.ne_missing),
}
_ARITHMETIC: dict[type[exp.Expr], arithmetic.Operator] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%",
}  # fmt: skip
_STRICT: tuple[type[exp.Expr], ...] = (
    exp.Paren, exp.Column, exp.Literal, exp.Boolean, exp.Not, exp.Neg, exp.Cast, exp.Extract, *_ARITHMETIC,
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE,
)  # fmt: skip
"""Nodes that are NULL where one of their parts is."""

_BUILDERS: dict[type[exp.Expr], Callable[[_Compiler, exp.Expr], Operand]] = {
    exp.Paren: lambda compiler, node: compiler.child(node, "this"),
    exp.Column: _Compiler.column,
    exp.Literal: _Compiler.literal,
    exp.Boolean: _Compiler.boolean,
    exp.Null: lambda _compiler, _node: null(),
    exp.Not: _Compiler.negation,
    exp.And: _Compiler.chain,
    exp.Or: _Compiler.chain,
    **dict.fromkeys(_COMPARISONS, _Compiler.comparison),
    **dict.fromkeys(_ARITHMETIC, _Compiler.arithmetic),
    exp.Is: _Compiler.is_test,
    exp.Between: _Compiler.between,
    exp.In: _Compiler.is_in,
    exp.Like: _Compiler.pattern,
    exp.ILike: _Compiler.pattern,
    exp.Escape: _Compiler.pattern,
    exp.Neg: _Compiler.negative,
    exp.DPipe: _Compiler.joined_text,
    exp.Case: _Compiler.case,
    exp.Cast: _Compiler.cast,
    exp.Extract: _Compiler.extract,
    exp.Anonymous: _Compiler.call,
}

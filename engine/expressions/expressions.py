"""From the text of an expression to a typed Polars expression: names resolved, types inferred, nothing passed through.

Semantics are SQL's: NULL is unknown, AND and OR are three-valued, a comparison with NULL is NULL. A timestamp meets a text
written out beside it (``ts >= '2013-01-01'``), numbers meet in the wider type. What a value cannot give (1/0, a text that is no
number, a bigint overflow) is NULL: see ``operands`` and ``arithmetic``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, Final

import polars as pl

from engine.expressions import python_functions
from engine.expressions.aggregates.aggregates import AGGREGATE_NAMES
from engine.expressions.cpu_deadline import ask
from engine.expressions.library.choosing import all_null, chosen, none_of, undecided
from engine.expressions.library.entry import OverNodes
from engine.expressions.library.function_list import check_count, function_of
from engine.expressions.library.times.times import extract
from engine.expressions.parameters import free_columns, with_columns, with_quotes
from engine.expressions.suggestions import hint, meant
from engine.expressions.syntax import parse, render, type_of
from engine.expressions.types.types import BOOLEAN, STRING, Schema
from engine.expressions.values import arithmetic, nested, texts
from engine.expressions.values.compiling import Scalar
from engine.expressions.values.evaluation_errors import Gaps
from engine.expressions.values.once import once, repeated
from engine.expressions.values.operands import (
    ExpressionInvalid,
    Operand,
    cast,
    coerce,
    coerce_all,
    null,
    number_literal,
    text_literal,
)
from engine.expressions.values.texts import like, like_computed
from engine.sql.tree import (
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
    Extract,
    Field,
    Identifier,
    In,
    Is,
    Like,
    MapOf,
    Negative,
    Node,
    Not,
    Null,
    Number,
    Paren,
    Star,
    StructOf,
    Text,
)

__all__ = [
    "ExpressionInvalid", "Scalar", "columns_of", "compile_scalar", "compile_tree", "qualify", "resolve",
]  # fmt: skip


@lru_cache(maxsize=1_024)
def compile_scalar(text: str, schema: Schema) -> Scalar:
    """Compile a scalar expression against a schema.

    ``a.b`` names the column "a.b"; a bare ``b`` the column "b", or the only column "*.b"; letter case counts.

    Raises:
        ExpressionInvalid: expression_malformed, unknown_column, ambiguous_column, unknown_function, type_mismatch or
            not_a_scalar.
    """
    return compile_tree(parse(text), schema)


def compile_tree(tree: Node, schema: Schema) -> Scalar:
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
        expr = pl.repeat(expr.first(), pl.len(), dtype=operand.type.polars)
    gaps = compiler.gaps.of(operand, sorted(compiler.columns))
    return Scalar(expr, operand.type, frozenset(compiler.columns), gaps, compiler.gaps.is_strict, compiler.makes_lists)


def resolve(column: Column, schema: Schema) -> str:
    """Return the schema's name of a column reference.

    Raises:
        ExpressionInvalid: ``unknown_column`` or ``ambiguous_column``.
    """
    name = column.full_name
    if name in schema:
        return name
    if column.table is None:
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
    return frozenset(resolve(node, schema) for node in free_columns(parse(text)))


def qualify(written: str | Node, schema: Schema, rename: Callable[[str], tuple[str | None, str]] | None = None) -> str:
    """Return the canonical text of an expression: every column by its full name in ``schema``; columns, fields and parameters in quotes.

    Args:
        written: an expression that compiles against ``schema``, or its tree.
        schema: names and types.
        rename: from a name of the schema to (alias, column) as it shall be written; by default the name itself, split at its dot.

    Raises:
        ExpressionInvalid: the expression does not parse, or names an unknown column.
    """
    name_of = split if rename is None else rename

    def named(column: Column) -> Column:
        alias, name = name_of(resolve(column, schema))
        return Column(Identifier(name, is_quoted=True), None if alias is None else Identifier(alias, is_quoted=True))

    tree = parse(written) if isinstance(written, str) else written
    return render(with_quotes(with_columns(tree, named)))


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
    makes_lists: bool = False

    def compile(self, node: Node) -> Operand:
        ask()
        build = _BUILDERS.get(type(node))
        if build is None:
            raise ExpressionInvalid("not_a_scalar", f"{render(node)[:60]} is not a value here")
        self.gaps.is_strict &= isinstance(node, _STRICT) or (isinstance(node, Binary) and node.sign in _STRICT_SIGNS)
        operand = build(self, node)
        self.makes_lists |= isinstance(node, Call) and operand.type is not None and operand.type.is_nested
        return operand

    def compile_inside(self, node: Node, schema: Schema) -> Scalar:
        return compile_tree(node, schema)

    def condition(self, node: Node, where: str) -> pl.Expr:
        return coerce(self.compile(node), BOOLEAN, where)

    def column(self, node: Column) -> Operand:
        name = resolve(node, self.schema)
        if name == "*" or (name.startswith("^") and name.endswith("$")):
            # Polars reads these as "all columns" and as a regex over column names.
            raise ExpressionInvalid("expression_malformed", f"a column called {name!r} cannot be used in expressions; rename it")
        self.columns.add(name)
        return Operand(pl.col(name), self.schema[name])

    def star(self, _node: Star) -> Operand:
        raise ExpressionInvalid("not_a_scalar", "* stands for many columns; name one")

    def negation(self, node: Not) -> Operand:
        return Operand(~self.condition(node.operand, "NOT"), BOOLEAN)

    def chain(self, node: Chain) -> Operand:
        if node.sign == "||":
            return self.joined_text(node)
        is_and = node.sign == "AND"
        parts: list[pl.Expr] = []
        for part in node.operands:
            with self.gaps.where(partial(undecided, parts, is_and=is_and)):
                parts.append(self.condition(part, node.sign))
        return Operand(pl.all_horizontal(parts) if is_and else pl.any_horizontal(parts), BOOLEAN)

    def binary(self, node: Binary) -> Operand:
        left, right = self.compile(node.left), self.compile(node.right)
        if node.sign in _COMPARISONS:
            return self.compare(node.sign, _COMPARISONS[node.sign], left, right)
        sign = _ARITHMETIC[node.sign]
        result = arithmetic.binary(sign, left, right)
        self.gaps.after_arithmetic(sign, left, right, result)
        return result

    def compare(self, sign: str, build: Callable[[pl.Expr, pl.Expr], pl.Expr], left: Operand, right: Operand) -> Operand:
        (a, b), kind = coerce_all([left, right], sign)
        if kind is not None and kind.is_nested:
            if sign in _ORDERED_SIGNS:
                raise ExpressionInvalid("type_mismatch", f"{sign}: {kind} {nested.NO_ORDER}")
            return Operand(nested.compared(sign, a, b, kind), BOOLEAN)
        if kind is None and sign not in ("IS DISTINCT FROM", "IS NOT DISTINCT FROM"):
            return Operand(pl.lit(None, dtype=pl.Boolean), BOOLEAN)
        return Operand(build(a, b), BOOLEAN)

    def is_test(self, node: Is) -> Operand:
        if isinstance(node.wanted, Null):
            return Operand(self.compile(node.operand).expr.is_null(), BOOLEAN)
        value = self.condition(node.operand, "IS")
        return Operand(value.eq_missing(pl.lit(node.wanted.value)), BOOLEAN)

    def between(self, node: Between) -> Operand:
        def build(value: Operand, low: Operand, high: Operand) -> pl.Expr:
            above = self.compare("BETWEEN", pl.Expr.ge, value, low)
            return above.expr & self.compare("BETWEEN", pl.Expr.le, value, high).expr

        return Operand(_once(build, *map(self.compile, (node.operand, node.low, node.high))), BOOLEAN)

    def is_in(self, node: In) -> Operand:
        value = self.compile(node.operand)
        items = [self.compile(item) for item in node.items]
        if not items:
            raise ExpressionInvalid("expression_malformed", "IN needs at least one value")

        def build(sought: Operand, *listed: Operand) -> pl.Expr:
            return pl.any_horizontal([self.compare("IN", pl.Expr.eq, sought, item).expr for item in listed])

        return Operand(_once(build, value, *items), BOOLEAN)

    def pattern(self, node: Like) -> Operand:
        value = coerce(self.compile(node.operand), STRING, "LIKE")
        pattern = self.compile(node.pattern)
        escape = None if node.escape is None else node.escape.value
        if isinstance(pattern.literal, str):
            matches = like(value, pattern.literal, escape, is_case_sensitive=node.is_case_sensitive)
        elif escape == "":
            matches = like_computed(value, coerce(pattern, STRING, "LIKE"), is_case_sensitive=node.is_case_sensitive)
        else:
            detail = "LIKE needs its pattern written out, as in 'AB%'; a computed one has no escapes: write ESCAPE ''"
            raise ExpressionInvalid("type_mismatch", detail)
        return Operand(~matches if node.is_negated else matches, BOOLEAN)

    def negative(self, node: Negative) -> Operand:
        value = self.compile(node.operand)
        result = arithmetic.negate(value)
        self.gaps.after_negation(value, result)
        return result

    def joined_text(self, node: Chain) -> Operand:
        parts = []
        for part in node.operands:
            operand = self.compile(part)
            if operand.type not in (None, STRING):
                raise ExpressionInvalid("type_mismatch", f"|| joins texts, not {operand.kind}; use CAST(… AS string)")
            parts.append(coerce(operand, STRING, "||"))
        self.gaps.add("text_too_long", texts.is_joined_too_long(parts, passes_nulls=False))
        return Operand(texts.joined(parts, passes_nulls=False), STRING)

    def case(self, node: Case) -> Operand:
        subject = None if node.subject is None else self.compile(node.subject)
        conditions: list[pl.Expr] = []
        compared: list[Operand] = []
        values: list[Operand] = []
        for branch in node.branches:
            with self.gaps.where(partial(none_of, conditions)):
                if subject is None:
                    condition = self.condition(branch.condition, "WHEN")
                else:
                    compared.append(self.compile(branch.condition))
                    condition = self.compare("CASE", pl.Expr.eq, subject, compared[-1]).expr
                with self.gaps.where(condition):
                    values.append(self.compile(branch.result))
            conditions.append(condition)
        with self.gaps.where(partial(none_of, conditions)):
            values.append(null() if node.default is None else self.compile(node.default))
        results, kind = coerce_all(values, "CASE")
        if subject is None:
            return Operand(chosen(conditions, results), kind)
        branches = [Operand(result, kind) for result in results]

        def build(sought: Operand, *parts: Operand) -> pl.Expr:
            equal = [self.compare("CASE", pl.Expr.eq, sought, part).expr for part in parts[: len(compared)]]
            return chosen(equal, [part.expr for part in parts[len(compared) :]])

        return Operand(_once(build, subject, *compared, *branches), kind)

    def cast(self, node: Cast) -> Operand:
        target = type_of(node.type)
        value = self.compile(node.operand)
        result = cast(value, target)
        if value.is_null and target.is_nested:
            return replace(result, expr=repeated(result.expr))
        self.gaps.after_cast(value, result)
        return result

    def extract(self, node: Extract) -> Operand:
        part = node.part.value if isinstance(node.part, Text) else node.part.text
        return extract(part, self.compile(node.operand))

    def call(self, node: Call) -> Operand:
        name = node.name.text
        if name in AGGREGATE_NAMES:
            raise ExpressionInvalid("not_a_scalar", f"{name} is an aggregate; it belongs into `aggregate`")
        if name == python_functions.CALL:
            self.gaps.is_strict = False
            return python_functions.compiled([self.compile(argument) for argument in node.arguments], self.gaps)
        function = function_of(name)
        if node.is_distinct:
            raise ExpressionInvalid("not_a_scalar", f"{name} is no aggregate, so it takes no DISTINCT")
        check_count(function, len(node.arguments))
        if isinstance(function.build, OverNodes):
            self.gaps.is_strict = False
            return function.build.compile(self, node.arguments)
        arguments: list[Operand] = []
        for argument in node.arguments:
            with self.gaps.where(partial(all_null, arguments if function.is_lazy else ())):
                arguments.append(self.compile(argument))
        if any(argument.type is not None and argument.type.is_nested for argument in arguments):
            arguments = [replace(argument, expr=repeated(argument.expr)) for argument in arguments]
        result = function.build(arguments)
        self.gaps.is_strict &= result.is_strict
        if function.gaps is not None:
            function.gaps(self.gaps, arguments, result)
        return result


def _once(build: Callable[..., pl.Expr], *operands: Operand) -> pl.Expr:
    """Return ``build(*operands)``, each operand computed once."""

    def of(*parts: pl.Expr) -> pl.Expr:
        return build(*(replace(operand, expr=part) for operand, part in zip(operands, parts, strict=True)))

    return once(of, *(operand.expr for operand in operands))


_COMPARISONS: Final[dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]]] = {
    "=": pl.Expr.eq,
    "<>": pl.Expr.ne,
    "<": pl.Expr.lt,
    "<=": pl.Expr.le,
    ">": pl.Expr.gt,
    ">=": pl.Expr.ge,
    "IS NOT DISTINCT FROM": pl.Expr.eq_missing,
    "IS DISTINCT FROM": pl.Expr.ne_missing,
}
_ARITHMETIC: Final[dict[str, arithmetic.Operator]] = {"+": "+", "-": "-", "*": "*", "/": "/", "%": "%"}
_ORDERED_SIGNS: Final = frozenset({"<", "<=", ">", ">=", "BETWEEN"})
_STRICT: Final = (Paren, Column, Number, Text, Boolean, Not, Negative, Cast, Extract, Field, Element, Call)
_STRICT_SIGNS: Final = frozenset({*_ARITHMETIC, "=", "<>", "<", "<=", ">", ">="})
"""Nodes, and signs of them, that are NULL where one of their parts is; of calls those that say so (``Operand.is_strict``)."""

_BUILDERS: Final[dict[type[Node], Callable[[_Compiler, Any], Operand]]] = {
    Paren: lambda compiler, node: compiler.compile(node.inner),
    Column: _Compiler.column,
    Star: _Compiler.star,
    Number: lambda _, node: number_literal(node.text),
    Text: lambda _, node: text_literal(node.value),
    Boolean: lambda _, node: Operand(pl.lit(node.value, dtype=pl.Boolean), BOOLEAN),
    Null: lambda _, __: null(),
    Not: _Compiler.negation,
    Chain: _Compiler.chain,
    Binary: _Compiler.binary,
    Is: _Compiler.is_test,
    Between: _Compiler.between,
    In: _Compiler.is_in,
    Like: _Compiler.pattern,
    Negative: _Compiler.negative,
    Case: _Compiler.case,
    Cast: _Compiler.cast,
    Extract: _Compiler.extract,
    Call: _Compiler.call,
    Field: nested.field,
    Element: nested.element,
    ArrayOf: nested.array,
    MapOf: nested.mapping,
    StructOf: nested.struct,
}

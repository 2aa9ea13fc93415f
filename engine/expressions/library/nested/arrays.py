"""Functions of arrays. Elements are equal as nested values are: a NULL equals a NULL."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

from engine.expressions.documented import Example
from engine.expressions.library.arguments import whole, written_text
from engine.expressions.library.entry import Arguments, Function
from engine.expressions.limits import MAX_ARRAY_ELEMENTS
from engine.expressions.types.types import BIGINT, BOOLEAN, INT, STRING, ColumnType
from engine.expressions.values.evaluation_errors import Gaps, without_result
from engine.expressions.values.nested import NO_ORDER, array_of, comparable, listed
from engine.expressions.values.once import once, repeated
from engine.expressions.values.operands import ExpressionInvalid, Operand, cast, coerce, common_type

_DIRECTIONS = {"asc": False, "ascending": False, "desc": True, "descending": True}
_VALUE, _IS_LEFT = "value", "is_left"


def arrays_of(name: str, arguments: Arguments) -> tuple[list[pl.Expr], ColumnType]:
    """Return arrays in their common type, and that of their elements; entries of maps inside in the order of their keys."""
    kind = common_type(arguments, name)
    if kind is None or kind.element is None:
        raise ExpressionInvalid("type_mismatch", f"{name} works on arrays, not {'NULL' if kind is None else kind}")
    return [comparable(coerce(each, kind, name), kind) for each in arguments], kind.element


def _with_value(name: str, arguments: Arguments) -> tuple[pl.Expr, ColumnType]:
    """Return arrays with the value that is asked about as their last element, and the elements' type."""
    array, value = arguments
    if array.type is None or array.type.element is None:
        raise ExpressionInvalid("type_mismatch", f"{name} works on an array, not {array.kind}")
    element = common_type([Operand(pl.lit(None), array.type.element), value], name) or array.type.element
    kind = array_of(element)
    held, sought = coerce(array, kind, name), comparable(coerce(value, element, name), element)
    return pl.concat_list(comparable(held, kind), listed([sought], element)), element


def contains(arguments: Arguments) -> Operand:
    held, _ = _with_value("array_contains", arguments)
    is_it = pl.element().eq_missing(pl.element().last())
    return Operand((held.list.eval(is_it).list.sum() > 1).fill_null(value=False), BOOLEAN)


def remove(arguments: Arguments) -> Operand:
    held, element = _with_value("array_remove", arguments)
    return Operand(held.list.eval(pl.element().filter(pl.element().ne_missing(pl.element().last()))), array_of(element))


def length(arguments: Arguments) -> Operand:
    (held,) = arguments
    if held.type is None or held.type.kind not in ("array", "map"):
        raise ExpressionInvalid("type_mismatch", f"array_length counts the elements of an array or a map, not of {held.kind}")
    return Operand(held.expr.list.len().cast(INT.polars), INT)


def distinct(arguments: Arguments) -> Operand:
    (held,), element = arrays_of("array_distinct", arguments)
    return Operand(_distinct(held), array_of(element))


def _distinct(held: pl.Expr) -> pl.Expr:
    return held.list.eval(pl.element().filter(pl.element().is_first_distinct()))


def union(arguments: Arguments) -> Operand:
    (left, right), element = arrays_of("array_union", arguments)
    return Operand(_bounded(_distinct(pl.concat_list(left, right))), array_of(element))


def concatenated(arguments: Arguments) -> Operand:
    kind = common_type(arguments, "array_concat")
    if kind is None or kind.element is None:
        raise ExpressionInvalid("type_mismatch", f"array_concat works on arrays, not {'NULL' if kind is None else kind}")

    def build(left: pl.Expr, right: pl.Expr) -> pl.Expr:
        return _bounded(pl.coalesce(pl.concat_list(left, right), left, right))

    return Operand(once(build, *(coerce(each, kind, "array_concat") for each in arguments)), kind)


def _bounded(made: pl.Expr) -> pl.Expr:
    return once(lambda value: pl.when(value.list.len() <= MAX_ARRAY_ELEMENTS).then(value), made)


def of_longer(gaps: Gaps, arguments: Arguments, result: Operand) -> None:
    """Note where two arrays or maps are too long together: one of them is there, and the result is not."""
    is_given = pl.any_horizontal([each.expr.is_not_null() for each in arguments])
    gaps.add("list_too_long", is_given & result.expr.is_null())


def common(name: str, *, is_in_both: bool) -> Callable[[Arguments], Operand]:
    """Compile array_intersect and array_except: the left elements, once each, that the right array holds, or does not."""

    def compiled(arguments: Arguments) -> Operand:
        (left, right), element = arrays_of(name, arguments)
        value, is_left = pl.element().struct.field(_VALUE), pl.element().struct.field(_IS_LEFT)
        is_right = value.is_in(value.filter(~is_left).implode(), nulls_equal=True)
        kept = is_left & value.is_first_distinct() & (is_right if is_in_both else ~is_right)
        marked = pl.concat_list(_marked(left, is_left=True), _marked(right, is_left=False))
        return Operand(marked.list.eval(value.filter(kept)), array_of(element))

    return compiled


def _marked(held: pl.Expr, *, is_left: bool) -> pl.Expr:
    return held.list.eval(pl.struct(pl.element().alias(_VALUE), pl.lit(is_left).alias(_IS_LEFT)))


def extreme(name: str, build: Callable[[pl.Expr], pl.Expr]) -> Callable[[Arguments], Operand]:
    def compiled(arguments: Arguments) -> Operand:
        (held,), element = arrays_of(name, arguments)
        return Operand(build(held), _ordered(name, element))

    return compiled


def _ordered(name: str, element: ColumnType) -> ColumnType:
    if element.is_nested:
        raise ExpressionInvalid("type_mismatch", f"{name}: {element} {NO_ORDER}")
    return element


def in_order(arguments: Arguments) -> Operand:
    (held,), element = arrays_of("array_sort", arguments[:1])
    direction = written_text("array_sort", arguments[1]).lower() if len(arguments) > 1 else "asc"
    if direction not in _DIRECTIONS:
        raise ExpressionInvalid("type_mismatch", f"array_sort knows {', '.join(_DIRECTIONS)}, not {direction[:40]!r}")
    _ordered("array_sort", element)
    return Operand(held.list.sort(descending=_DIRECTIONS[direction], nulls_last=True), array_of(element))


def joined(arguments: Arguments) -> Operand:
    (held,), element = arrays_of("array_join", arguments[:1])
    separator = coerce(arguments[1], STRING, "array_join") if len(arguments) > 1 else pl.lit(",")
    if element.is_nested or element.kind == "bytes":
        raise ExpressionInvalid("type_mismatch", f"array_join joins texts, not {element}")
    texts = held.list.eval(cast(Operand(pl.element(), element), STRING).expr.fill_null("null"))
    return Operand(texts.list.join(pl.coalesce(separator, pl.lit(""))), STRING)


def sliced(arguments: Arguments) -> Operand:
    held = arguments[0]
    if held.type is None or held.type.kind != "array":
        raise ExpressionInvalid("type_mismatch", f"slice works on an array, not {held.kind}")

    def build(array: pl.Expr, first: pl.Expr, last: pl.Expr) -> pl.Expr:
        skipped, end = pl.coalesce(first - 1, 0), pl.coalesce(last, array.list.len().cast(pl.Int64))
        is_inside = (first.is_null() | (first > 0)) & (skipped <= end) & (end <= array.list.len())
        return pl.when(is_inside).then(
            array.list.slice(skipped.clip(0, _FAR), (end.clip(0, _FAR) - skipped.clip(0, _FAR)).clip(0))
        )

    return Operand(once(build, held.expr, *(whole("slice", each) for each in arguments[1:])), held.type)


def series(arguments: Arguments) -> Operand:
    kind = BIGINT if any(each.type == BIGINT for each in arguments[:2]) else INT
    start, end = (whole("generate_series", each) for each in arguments[:2])
    steps = [whole("generate_series", each) for each in arguments[2:]]
    if any(each.type is None for each in arguments):
        return Operand(pl.lit(None, dtype=array_of(kind).polars), array_of(kind))

    def build(first: pl.Expr, last: pl.Expr, *given: pl.Expr) -> pl.Expr:
        by = given[0] if given else pl.when(last > first).then(1).otherwise(-1).cast(pl.Int64)
        wide = last.cast(pl.Int128) - first.cast(pl.Int128)
        count = 1 + wide.abs() // pl.when(by != 0).then(by.cast(pl.Int128).abs())
        is_given = (count <= MAX_ARRAY_ELEMENTS) & ((wide == 0) | ((wide > 0) == (by > 0)))
        behind = (first.cast(pl.Int128) + count * by.cast(pl.Int128)).cast(pl.Int64, strict=False)
        begin = pl.when(is_given & behind.is_not_null()).then(first)
        return pl.int_ranges(begin, behind, pl.when(by != 0).then(by), dtype=pl.Int64).list.eval(pl.element().cast(kind.polars))

    return Operand(once(build, *map(repeated, (start, end, *steps))), array_of(kind))


_FAR = 2**40
_LONG = f"NULL and counted of more than {MAX_ARRAY_ELEMENTS:,}."
ARRAYS: Sequence[Function] = (
    Function(
        "array_contains", "a: array, x: any", "boolean", "Whether an array holds a value; a NULL equals a NULL. FALSE of a NULL array.",
        (Example("array_contains(ARRAY[1, 2], 2)", True), Example("array_contains(ARRAY[1, NULL], NULL)", True)),
        contains, ksqldb=("ARRAY_CONTAINS",),
    ),
    Function(
        "array_length", "x: array or map", "int", "How many elements or entries there are.", (Example("array_length(ARRAY[1, NULL])", 2),),
        length, elsewhere=("cardinality",), ksqldb=("ARRAY_LENGTH",),
    ),
    Function(
        "array_distinct", "a: array", "type of a", "Each different element once, where it stands first.",
        (Example("array_distinct(ARRAY[1, 2, 1, NULL, NULL])", [1, 2, None]),), distinct, ksqldb=("ARRAY_DISTINCT",),
    ),
    Function(
        "array_union", "a: array, b: array", "the common type", f"Each different element of both once, a's first; {_LONG}",
        (Example("array_union(ARRAY[1, 2], ARRAY[2, 3])", [1, 2, 3]),), union, gaps=without_result("list_too_long"),
        ksqldb=("ARRAY_UNION",),
    ),
    Function(
        "array_intersect", "a: array, b: array", "the common type", "Each different element of a once that b holds, too.",
        (Example("array_intersect(ARRAY[1, 2, 2], ARRAY[2])", [2]),), common("array_intersect", is_in_both=True), ksqldb=("ARRAY_INTERSECT",),
    ),
    Function(
        "array_except", "a: array, b: array", "the common type", "Each different element of a once that b does not hold.",
        (Example("array_except(ARRAY[1, 2, 1], ARRAY[2])", [1]),), common("array_except", is_in_both=False), ksqldb=("ARRAY_EXCEPT",),
    ),
    Function(
        "array_concat", "a: array, b: array", "the common type", f"a's elements and then b's; where one is NULL, the other. {_LONG}",
        (Example("array_concat(ARRAY[1], ARRAY[1, 2])", [1, 1, 2]),), concatenated, gaps=of_longer,
        elsewhere=("array_cat",), ksqldb=("ARRAY_CONCAT",),
    ),
    Function(
        "array_remove", "a: array, x: any", "type of a", "The elements that are not x; a NULL equals a NULL.",
        (Example("array_remove(ARRAY[1, 2, 1], 1)", [2]),), remove, ksqldb=("ARRAY_REMOVE",),
    ),
    Function(
        "array_max", "a: array of any that has an order", "type of the elements", "The greatest element that is not NULL.",
        (Example("array_max(ARRAY[1, NULL, 3])", 3),), extreme("array_max", lambda held: held.list.max()), ksqldb=("ARRAY_MAX",),
    ),
    Function(
        "array_min", "a: array of any that has an order", "type of the elements", "The smallest element that is not NULL.",
        (Example("array_min(ARRAY['b', 'a'])", "a"),), extreme("array_min", lambda held: held.list.min()), ksqldb=("ARRAY_MIN",),
    ),
    Function(
        "array_sort", "a: array of any that has an order, direction?: string", "type of a",
        "The elements in their order, or against it where 'desc' is written; NULLs come last.",
        (Example("array_sort(ARRAY[2, NULL, 1])", [1, 2, None]), Example("array_sort(ARRAY[2, NULL, 3], 'desc')", [3, 2, None])),
        in_order, ksqldb=("ARRAY_SORT",),
    ),
    Function(
        "array_join", "a: array of any but nested and bytes, separator?: string", "string",
        "The elements as texts with a separator between them, by default a comma; a NULL is written null.",
        (Example("array_join(ARRAY[1, NULL, 2])", "1,null,2"), Example("array_join(ARRAY['a', 'b'], '-')", "a-b")),
        joined, elsewhere=("array_to_string",), ksqldb=("ARRAY_JOIN",),
    ),
    Function(
        "slice", "a: array, first: whole number, last: whole number", "type of a",
        "The elements from one position to another, both counted from 1 and NULL for the end; NULL if there are fewer.",
        (Example("slice(ARRAY[1, 2, 3], 2, 3)", [2, 3]), Example("slice(ARRAY[1, 2], 1, 3)", None)),
        sliced, ksqldb=("SLICE",),
    ),
    Function(
        "generate_series", "first: whole number, last: whole number, step?: whole number", "array<int>; of bigint array<bigint>",
        f"Numbers from one to the other, in steps of 1 or -1 if none is given; NULL (counted) for a step of 0 or of wrong sign, or of more than "
        f"{MAX_ARRAY_ELEMENTS:,}.",
        (Example("generate_series(1, 3)", [1, 2, 3]), Example("generate_series(6, 1, -2)", [6, 4, 2])),
        series, gaps=without_result("outside_domain"), ksqldb=("GENERATE_SERIES",),
    ),
)  # fmt: skip

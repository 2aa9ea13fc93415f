"""Values inside structs, arrays and maps: how they are taken out, put together and compared.

NULL in gives NULL out. Two nested values are equal where everything inside is; a NULL inside equals a NULL. The order of a map's entries
means nothing. They have no order among each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import polars as pl

from engine.expressions.suggestions import hint
from engine.expressions.types.types import BIGINT, MAX_TYPE_CHARS, MAX_TYPE_NESTING, STRING, ColumnType, check_field_name
from engine.expressions.values.compiling import Compiling
from engine.expressions.values.once import once, repeated
from engine.expressions.values.operands import ExpressionInvalid, Operand, coerce, coerce_all
from engine.expressions.values.rebuilding import KEY, VALUE, entries, rebuilt
from engine.sql.tree import ArrayOf, Element, Field, MapOf, StructOf


def array_of(element: ColumnType) -> ColumnType:
    """Return ``array<element>``. Raises ExpressionInvalid where it is too large a type."""
    return _bounded(ColumnType("array", element=element))


def map_of(value: ColumnType) -> ColumnType:
    """Return ``map<string,value>``. Raises ExpressionInvalid where it is too large a type."""
    return _bounded(ColumnType("map", key=STRING, value=value))


def struct_of(fields: Iterable[tuple[str, ColumnType]]) -> ColumnType:
    """Return ``struct<name:type,...>``. Raises ExpressionInvalid for a name that no field can have, or twice, and for too large a type."""
    listed = tuple(fields)
    for place, (name, _) in enumerate(listed):
        try:
            check_field_name(name)
        except ValueError as error:
            raise ExpressionInvalid("type_mismatch", str(error)) from error
        if any(name == taken for taken, _ in listed[:place]):
            raise ExpressionInvalid("type_mismatch", f"the struct has two fields {name!r}")
    return _bounded(ColumnType("struct", fields=listed))


def _bounded(made: ColumnType) -> ColumnType:
    if made.depth > MAX_TYPE_NESTING:
        raise ExpressionInvalid("type_mismatch", f"a type may be nested {MAX_TYPE_NESTING} deep")
    if len(str(made)) > MAX_TYPE_CHARS:
        raise ExpressionInvalid("type_mismatch", f"a type is longer than {MAX_TYPE_CHARS} characters")
    return made


NO_ORDER = "has no order, so it can only be equal or not; compare what is inside"
NO_KEY = "which cannot be a key: the entries of a map have no order; use single values of it, or entries(map, TRUE)"


def field(compiler: Compiling, node: Field) -> Operand:
    """Compile ``struct->name``. Letter case counts."""
    struct, name = compiler.compile(node.operand), node.name.text
    if struct.type is None or struct.type.kind != "struct":
        raise ExpressionInvalid("type_mismatch", f"-> takes a field out of a struct, not of {struct.kind}")
    known = dict(struct.type.fields)
    if name not in known:
        raise ExpressionInvalid("unknown_column", f"there is no field {name[:80]} in {struct.kind}{hint(name, tuple(known))}")
    return Operand(struct.expr.struct.field(name), known[name])


def element(compiler: Compiling, node: Element) -> Operand:
    """Compile ``array[position]`` and ``map[key]``."""
    held, index = (replace(each, expr=repeated(each.expr)) for each in map(compiler.compile, (node.operand, node.index)))
    if held.type is not None and held.type.kind == "map" and held.type.value is not None:
        sought = coerce(index, STRING, "[] of a map")
        is_written = isinstance(index.literal, str)
        return Operand(
            _of_written_key(held.expr, str(index.literal)) if is_written else _of_key(held.expr, sought), held.type.value
        )
    if held.type is None or held.type.element is None:
        raise ExpressionInvalid("type_mismatch", f"[] takes an element out of an array or a map, not of {held.kind}")
    if index.type is not None and not index.type.is_integer:
        raise ExpressionInvalid("type_mismatch", f"an array's elements have whole numbers, 1 is the first; {index.kind} is none")
    return Operand(once(_at, held.expr, coerce(index, BIGINT, "[]")), held.type.element)


def _at(array: pl.Expr, position: pl.Expr) -> pl.Expr:
    """Return the element of a position: 1 is the first, -1 the last, 0 none."""
    place = pl.when(position > 0).then(position - 1).when(position < 0).then(position)
    return array.list.get(pl.when(place.is_between(-(2**31), 2**31)).then(place), null_on_oob=True)


def _of_written_key(held: pl.Expr, key: str) -> pl.Expr:
    """Return a map's value of a key that is written out: value by value, which is faster than map by map."""
    entry = pl.element().struct
    return held.list.eval(pl.when(entry.field(KEY) == key).then(entry.field(VALUE))).list.drop_nulls().list.first()


def _of_key(held: pl.Expr, key: pl.Expr) -> pl.Expr:
    """Return a map's value of a key: the place of the first key that equals one put behind all of them."""

    def found(entry: pl.Expr, sought: pl.Expr) -> pl.Expr:
        keys = entry.list.eval(pl.element().struct.field(KEY))
        place = pl.concat_list(keys, sought).list.eval(pl.element() == pl.element().last()).list.arg_max()
        return entry.list.eval(pl.element().struct.field(VALUE)).list.get(place, null_on_oob=True)

    return once(found, held, key)


def array(compiler: Compiling, node: ArrayOf) -> Operand:
    """Compile ``ARRAY[x, …]``: the elements in their common type."""
    return array_of_all([compiler.compile(item) for item in node.items])


def array_of_all(operands: Sequence[Operand]) -> Operand:
    """Return arrays of these values in their common type. Raises ExpressionInvalid."""
    items, kind = coerce_all(operands, "ARRAY")
    if not items:
        raise ExpressionInvalid(
            "type_mismatch", "the type of an empty array is unknown; write CAST(NULL AS array<string>), or slice one"
        )
    if kind is None:
        raise ExpressionInvalid("type_mismatch", "the type of these NULLs is unknown; write CAST(NULL AS string) or another type")
    return Operand(listed(list(map(repeated, items)), kind), array_of(kind))


def listed(items: Sequence[pl.Expr], kind: ColumnType) -> pl.Expr:
    """Return arrays of these values of one type. Lists are wrapped first: Polars puts lists together end to end."""
    if kind.kind not in ("array", "map"):
        return pl.concat_list(items)
    return pl.concat_list([pl.struct(item.alias(VALUE)) for item in items]).list.eval(pl.element().struct.field(VALUE))


def mapping(compiler: Compiling, node: MapOf) -> Operand:
    """Compile ``MAP(key := value, …)``: the last of equal keys counts, a NULL is no key."""
    keys = [compiler.compile(entry.key) for entry in node.entries]
    values, kind = coerce_all([compiler.compile(entry.value) for entry in node.entries], "MAP")
    if not values:
        raise ExpressionInvalid("type_mismatch", "the type of an empty map is unknown; write at least one key := value")
    if kind is None:
        raise ExpressionInvalid("type_mismatch", "the type of these NULLs is unknown; write CAST(NULL AS string) or another type")
    for key in keys:
        if key.type not in (STRING, None):
            raise ExpressionInvalid("type_mismatch", f"a map's keys are strings, not {key.kind}; use CAST(… AS string)")
    pairs = [entries(repeated(coerce(key, STRING, "MAP")), repeated(value)) for key, value in zip(keys, values, strict=True)]
    made = pl.concat_list(pairs)
    written = {key.literal for key in keys}
    is_plain = len(written) == len(keys) and all(isinstance(literal, str) for literal in written)
    return Operand(made if is_plain else of_last_keys(made), map_of(kind))


def of_last_keys(held: pl.Expr) -> pl.Expr:
    """Return maps of entries in which a key may stand twice: the last one counts, and NULL is none."""
    key = pl.element().struct.field(KEY)
    return held.list.eval(pl.element().filter(key.is_last_distinct() & key.is_not_null()))


def struct(compiler: Compiling, node: StructOf) -> Operand:
    """Compile ``STRUCT(name := value, …)``."""
    made: list[pl.Expr] = []
    fields: list[tuple[str, ColumnType]] = []
    for part in node.fields:
        name, value = part.name.text, compiler.compile(part.value)
        if value.type is None:
            raise ExpressionInvalid(
                "type_mismatch", f"the type of the NULL in {name[:60]} is unknown; write CAST(NULL AS string)"
            )
        fields.append((name, value.type))
        made.append(repeated(value.expr).alias(name))
    if not fields:
        raise ExpressionInvalid("type_mismatch", "a struct has at least one field: STRUCT(name := value)")
    kind = struct_of(fields)
    return Operand(pl.struct(made), kind)


def compared(sign: str, left: pl.Expr, right: pl.Expr, kind: ColumnType) -> pl.Expr:
    """Return whether nested values of one type are equal, or differ where the sign says so."""
    is_other = sign in ("<>", "IS DISTINCT FROM")

    def build(one: pl.Expr, other: pl.Expr) -> pl.Expr:
        found = one.ne_missing(other) if is_other else one.eq_missing(other)
        return found if "DISTINCT" in sign else pl.when(one.is_not_null() & other.is_not_null()).then(found)

    return once(build, comparable(left, kind), comparable(right, kind))


def comparable(value: pl.Expr, kind: ColumnType) -> pl.Expr:
    """Return values that are equal to Polars where they are to us: the entries of maps in the order of their keys."""
    if not kind.has_map:
        return value
    inside = rebuilt(value, kind, kind, lambda part, own, _: comparable(part, own), is_whole=True)
    made = value if inside is None else inside
    return made.list.eval(pl.element().sort_by(pl.element().struct.field(KEY))) if kind.kind == "map" else made

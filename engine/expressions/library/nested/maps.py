"""Functions of maps."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from engine.expressions.documented import Example
from engine.expressions.library.entry import Arguments, Function
from engine.expressions.library.nested.arrays import arrays_of, of_longer
from engine.expressions.limits import MAX_ARRAY_ELEMENTS
from engine.expressions.types.types import BOOLEAN, STRING, ColumnType
from engine.expressions.values.nested import array_of, map_of, of_last_keys, struct_of
from engine.expressions.values.once import once
from engine.expressions.values.operands import ExpressionInvalid, Operand, coerce, common_type
from engine.expressions.values.rebuilding import KEY, VALUE, entries

_K, _V = "K", "V"
"""Fields of an entry, as ksqlDB calls them."""
_PLACE, _IS_KEY = "place", "is_key"


def _map_of(name: str, arguments: Arguments) -> tuple[list[pl.Expr], ColumnType, ColumnType]:
    """Return maps in their common type, that type, and the values' type."""
    kind = common_type(arguments, name)
    if kind is None or kind.kind != "map" or kind.value is None:
        raise ExpressionInvalid("type_mismatch", f"{name} works on maps, not {'NULL' if kind is None else kind}")
    return [coerce(each, kind, name) for each in arguments], kind, kind.value


def keys(arguments: Arguments) -> Operand:
    (held,), _, _ = _map_of("map_keys", arguments)
    return Operand(held.list.eval(pl.element().struct.field(KEY)), array_of(STRING))


def values(arguments: Arguments) -> Operand:
    (held,), _, value = _map_of("map_values", arguments)
    return Operand(held.list.eval(pl.element().struct.field(VALUE)), array_of(value))


def union(arguments: Arguments) -> Operand:
    both, kind, _ = _map_of("map_union", arguments)

    def build(left: pl.Expr, right: pl.Expr) -> pl.Expr:
        made = of_last_keys(pl.coalesce(pl.concat_list(left, right), left, right))
        return once(lambda value: pl.when(value.list.len() <= MAX_ARRAY_ELEMENTS).then(value), made)

    return Operand(once(build, *both), kind)


def listed_entries(arguments: Arguments) -> Operand:
    (held,), _, value = _map_of("entries", arguments[:1])
    kind = array_of(struct_of(((_K, STRING), (_V, value))))
    key, own = pl.element().struct.field(KEY), pl.element().struct.field(VALUE)

    def build(given: pl.Expr, is_sorted: pl.Expr) -> pl.Expr:
        ordered = given.list.eval(pl.element().sort_by(key))
        return pl.when(is_sorted).then(ordered).otherwise(given)

    is_sorted = coerce(arguments[1], BOOLEAN, "entries") if len(arguments) > 1 else pl.lit(value=False)
    return Operand(once(build, held, is_sorted).list.eval(pl.struct(key.alias(_K), own.alias(_V))), kind)


def from_arrays(arguments: Arguments) -> Operand:
    (names,), text = arrays_of("as_map", arguments[:1])
    (held,), value = arrays_of("as_map", arguments[1:])
    if text != STRING:
        raise ExpressionInvalid("type_mismatch", f"as_map: a map's keys are strings, not {text}")

    place, nothing = pl.int_range(pl.len()).alias(_PLACE), pl.lit(None)
    given = names.list.eval(
        pl.struct(place, pl.element().alias(KEY), nothing.cast(value.polars).alias(VALUE), _is_key(is_it=True))
    )
    others = held.list.eval(pl.struct(place, nothing.cast(pl.String).alias(KEY), pl.element().alias(VALUE), _is_key(is_it=False)))
    part = pl.element().struct
    # A key stands before the value of its place, which may be missing: the last of both is the value or NULL.
    made = entries(part.field(KEY), part.field(VALUE).last().over(part.field(_PLACE))).filter(part.field(_IS_KEY))
    return Operand(of_last_keys(pl.concat_list(given, others).list.eval(made)), map_of(value))


def _is_key(*, is_it: bool) -> pl.Expr:
    return pl.lit(is_it).alias(_IS_KEY)


MAPS: Sequence[Function] = (
    Function(
        "map_keys", "m: map", "array<string>", "The keys.", (Example("map_keys(MAP('a' := 1, 'b' := 2))", ["a", "b"]),), keys,
        ksqldb=("MAP_KEYS",),
    ),
    Function(
        "map_values", "m: map", "array", "The values, in the order of map_keys.", (Example("map_values(MAP('a' := 1, 'b' := 2))", [1, 2]),),
        values, ksqldb=("MAP_VALUES",),
    ),
    Function(
        "map_union", "m: map, n: map", "the common type",
        f"The entries of both; of a key in both n's value. Where one is NULL, the other. NULL and counted of more than {MAX_ARRAY_ELEMENTS:,}.",
        (Example("map_union(MAP('a' := 1, 'b' := 2), MAP('b' := 3))", {"a": 1, "b": 3}),), union, gaps=of_longer,
        ksqldb=("MAP_UNION",),
    ),
    Function(
        "entries", "m: map, sorted?: boolean", "array<struct<K:string,V:any>>", "The entries as structs of key and value; by key if `sorted`.",
        (Example("entries(MAP('b' := 1, 'a' := 2), TRUE)", [{"K": "a", "V": 2}, {"K": "b", "V": 1}]),), listed_entries,
        ksqldb=("ENTRIES",),
    ),
    Function(
        "as_map", "keys: array<string>, values: array", "map", "A map of keys and the values at their positions; NULL where there are fewer.",
        (Example("as_map(ARRAY['a', 'b'], ARRAY[1, 2])", {"a": 1, "b": 2}),), from_arrays, ksqldb=("AS_MAP",),
    ),
)  # fmt: skip

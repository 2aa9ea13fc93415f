"""Random expressions over nested values, each with what it means for one row in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from engine.expressions.types.types import BIGINT, STRING, ColumnType, Schema, parse_type

Env = Mapping[str, Any]
"""The row's columns and the parameters of lambdas around, by name."""

LEAVES = (BIGINT, STRING)
SCHEMA = Schema(
    tuple(
        (name, parse_type(kind))
        for name, kind in {
            "n": "bigint", "t": "string", "a": "array<bigint>", "m": "map<string,bigint>", "s": "struct<f:bigint,g:array<string>>",
            "d": "array<struct<f:bigint,g:array<string>>>", "e": "map<string,array<bigint>>",
        }.items()
    )
)  # fmt: skip


@dataclass(frozen=True)
class Model:
    """An expression.

    Attributes:
        text: as it is written.
        value: what it is in a row.
    """

    text: str
    type: ColumnType
    value: Callable[[Env], Any]


def values(kind: ColumnType, *, depth: int = 0) -> st.SearchStrategy[Any]:
    """Return values of a type as rows hold them: a map is a dict."""
    match kind:
        case ColumnType(kind="array", element=ColumnType() as element):
            found: st.SearchStrategy[Any] = st.lists(values(element, depth=depth + 1), max_size=3)
        case ColumnType(kind="map", value=ColumnType() as value):
            found = st.dictionaries(st.sampled_from("xyz"), values(value, depth=depth + 1), max_size=3)
        case ColumnType(kind="struct", fields=fields):
            found = st.fixed_dictionaries({name: values(field, depth=depth + 1) for name, field in fields})
        case ColumnType(kind="string"):
            found = st.sampled_from("xyz")
        case _:
            found = st.integers(-2, 3)
    return st.none() | found


def held(value: Any, kind: ColumnType) -> Any:
    """Return a value as frames hold it."""
    match kind:
        case _ if value is None:
            return None
        case ColumnType(kind="array", element=ColumnType() as element):
            return [held(each, element) for each in value]
        case ColumnType(kind="map", value=ColumnType() as inner):
            return [{"key": key, "value": held(each, inner)} for key, each in value.items()]
        case ColumnType(kind="struct", fields=fields):
            return {name: held(value[name], field) for name, field in fields}
        case _:
            return value


@st.composite
def models(draw: st.DrawFn, kind: ColumnType, scope: Mapping[str, ColumnType], depth: int = 3) -> Model:
    """Return an expression of a type over these names."""
    named = [name for name, own in scope.items() if own == kind]
    ways = [_literal, *([_named] if named else [])]
    if depth:
        ways += [_built, _built, _element, _of_field, _chosen, _by_lambda]
    return draw(st.sampled_from(ways))(draw, kind, scope, depth)


def _named(draw: st.DrawFn, kind: ColumnType, scope: Mapping[str, ColumnType], _depth: int) -> Model:
    name = draw(st.sampled_from([name for name, own in scope.items() if own == kind]))
    return Model(name, kind, lambda env: env[name])


def _literal(draw: st.DrawFn, kind: ColumnType, _scope: Mapping[str, ColumnType], _depth: int) -> Model:
    if kind.is_nested or draw(st.integers(0, 9)) == 0:
        return Model(f"CAST(NULL AS {_written(kind)})", kind, lambda _: None)
    value = draw(st.integers(0, 3)) if kind == BIGINT else draw(st.sampled_from("xyz"))
    return Model(f"CAST({value} AS bigint)" if kind == BIGINT else f"'{value}'", kind, lambda _: value)


def _written(kind: ColumnType) -> str:
    return str(kind).replace(":", " ")


def _built(draw: st.DrawFn, kind: ColumnType, scope: Mapping[str, ColumnType], depth: int) -> Model:
    """Return a constructor of a nested type, a sum or a text."""
    match kind:
        case ColumnType(kind="array", element=ColumnType() as element):
            items = draw(st.lists(models(element, scope, depth - 1), min_size=1, max_size=3))
            return Model(
                f"ARRAY[{', '.join(each.text for each in items)}]", kind, lambda env: [each.value(env) for each in items]
            )
        case ColumnType(kind="map", value=ColumnType() as inner):
            pairs = draw(
                st.lists(st.tuples(models(STRING, scope, depth - 1), models(inner, scope, depth - 1)), min_size=1, max_size=3)
            )
            text = ", ".join(f"{key.text} := {value.text}" for key, value in pairs)
            return Model(f"MAP({text})", kind, lambda env: _mapping((key.value(env), value.value(env)) for key, value in pairs))
        case ColumnType(kind="struct", fields=fields):
            parts = [(name, draw(models(field, scope, depth - 1))) for name, field in fields]
            text = ", ".join(f"{name} := {part.text}" for name, part in parts)
            return Model(f"STRUCT({text})", kind, lambda env: {name: part.value(env) for name, part in parts})
    one, other = draw(models(kind, scope, depth - 1)), draw(models(kind, scope, depth - 1))
    if kind == STRING:
        return Model(
            f"CASE WHEN {one.text} = 'x' THEN {other.text} END",
            kind,
            lambda env: other.value(env) if one.value(env) == "x" else None,
        )
    return Model(f"({one.text} + {other.text})", kind, lambda env: _sum(one.value(env), other.value(env)))


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _mapping(pairs: Any) -> dict[str, Any]:
    return {key: value for key, value in pairs if key is not None}


def _element(draw: st.DrawFn, kind: ColumnType, scope: Mapping[str, ColumnType], depth: int) -> Model:
    if draw(st.booleans()):
        lists = draw(models(ColumnType("array", element=kind), scope, depth - 1))
        place = draw(models(BIGINT, scope, depth - 1))
        return Model(f"({lists.text})[{place.text}]", kind, lambda env: _at(lists.value(env), place.value(env)))
    maps = draw(models(ColumnType("map", key=STRING, value=kind), scope, depth - 1))
    key = draw(models(STRING, scope, depth - 1))
    return Model(
        f"({maps.text})[{key.text}]", kind, lambda env: None if (found := maps.value(env)) is None else found.get(key.value(env))
    )


def _at(given: list[Any] | None, place: int | None) -> Any:
    if given is None or not place or abs(place) > len(given):
        return None
    return given[place - 1 if place > 0 else place]


def _of_field(draw: st.DrawFn, kind: ColumnType, scope: Mapping[str, ColumnType], depth: int) -> Model:
    struct = draw(models(ColumnType("struct", fields=(("o", STRING), ("w", kind))), scope, depth - 1))
    return Model(f"({struct.text})->w", kind, lambda env: None if (found := struct.value(env)) is None else found["w"])


def _chosen(draw: st.DrawFn, kind: ColumnType, scope: Mapping[str, ColumnType], depth: int) -> Model:
    """Return a choice by whether two values of any type are equal."""
    sort = draw(st.sampled_from([*LEAVES, *SCHEMA.types]))
    one, other = draw(models(sort, scope, depth - 1)), draw(models(sort, scope, depth - 1))
    yes, no = draw(models(kind, scope, depth - 1)), draw(models(kind, scope, depth - 1))

    def value(env: Env) -> Any:
        left, right = one.value(env), other.value(env)
        return yes.value(env) if left is not None and right is not None and left == right else no.value(env)

    return Model(f"CASE WHEN {one.text} = {other.text} THEN {yes.text} ELSE {no.text} END", kind, value)


def _by_lambda(draw: st.DrawFn, kind: ColumnType, scope: Mapping[str, ColumnType], depth: int) -> Model:
    name, state = draw(st.sampled_from(["p", "q", "n"])), draw(st.sampled_from(["u", "a"]))
    sort = draw(st.sampled_from([BIGINT, STRING, SCHEMA["s"]]))
    given = draw(models(ColumnType("array", element=sort), scope, depth - 1))
    if kind.kind == "array" and kind.element is not None and draw(st.booleans()):
        if sort == kind.element and draw(st.booleans()):
            wanted = draw(models(BIGINT, {**scope, name: sort}, depth - 1))
            return Model(
                f"filter({given.text}, {name} => {wanted.text} = 1)", kind,
                lambda env: _each(given.value(env), lambda found: [e for e in found if wanted.value({**env, name: e}) == 1]),
            )  # fmt: skip
        body = draw(models(kind.element, {**scope, name: sort}, depth - 1))
        return Model(
            f"transform({given.text}, {name} => {body.text})", kind,
            lambda env: _each(given.value(env), lambda found: [body.value({**env, name: e}) for e in found]),
        )  # fmt: skip
    start = draw(models(kind, scope, depth - 1))
    body = draw(models(kind, {**scope, state: kind, name: sort}, depth - 1))

    def reduced(env: Env) -> Any:
        found = start.value(env)
        for e in (given.value(env) or []) if found is not None else []:
            found = body.value({**env, state: found, name: e})
        return found

    return Model(f"reduce({given.text}, {start.text}, ({state}, {name}) => {body.text})", kind, reduced)


def _each(given: Any, build: Callable[[Any], Any]) -> Any:
    return None if given is None else build(given)

"""Functions that take a lambda."""

from __future__ import annotations

from collections.abc import Sequence

from engine.expressions.documented import Example
from engine.expressions.library.entry import Function, OverNodes
from engine.expressions.limits import MAX_REDUCED_BYTES, MAX_REDUCED_ELEMENTS, MAX_TEXT_BYTES
from engine.expressions.values import lambdas

LAMBDAS: Sequence[Function] = (
    Function(
        "transform", "x: array or map, f: lambda, g?: lambda", "array or map",
        "What a lambda gives for each element. Of a map f gives the key and g the value, each of key and value; the last of equal keys "
        f"counts. Elements behind the first {MAX_TEXT_BYTES >> 20} MiB of texts that it makes are NULL, and the record is counted.",
        (
            Example("transform(ARRAY[1, 2], x => x * 10)", [10, 20]),
            Example("transform(MAP('a' := 1), (k, v) => upper(k), (k, v) => v + 1)", {"A": 2}),
        ),
        OverNodes(lambdas.transform), ksqldb=("TRANSFORM",),
    ),
    Function(
        "filter", "x: array or map, f: lambda", "type of x", "The elements for which a lambda is true; of a map it takes key and value.",
        (
            Example("filter(ARRAY[1, 2, 3], x => x <> 2)", [1, 3]),
            Example("filter(MAP('a' := 1, 'b' := 2), (k, v) => v > 1)", {"b": 2}),
        ),
        OverNodes(lambdas.filtered), ksqldb=("FILTER",),
    ),
    Function(
        "reduce", "x: array or map, start: any, f: lambda", "type of the start, or what f gives if it is wider",
        "One value of all elements: f gives the next state from the state and an element (of a map: the state, a key and a value). "
        f"NULL where the start is, the start where x is NULL; NULL and counted of more than {MAX_REDUCED_ELEMENTS:,} elements, "
        f"or {MAX_REDUCED_BYTES >> 20} MiB of texts on the way.",
        (Example("reduce(ARRAY[1, 2, 3], 0, (s, x) => s + x)", 6), Example("reduce(MAP('a' := 1), '', (s, k, v) => s || k)", "a")),
        OverNodes(lambdas.reduced), ksqldb=("REDUCE",),
    ),
)  # fmt: skip

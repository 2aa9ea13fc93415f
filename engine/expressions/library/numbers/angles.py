"""Functions of angles, places on Earth, roots, powers and logarithms: doubles throughout.

Where a result is no finite number, ours are NULL and ksqlDB's (``ksql_…``) NaN or infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import polars as pl

from engine.expressions.documented import Example
from engine.expressions.library.arguments import given, of_double, texts_of
from engine.expressions.library.entry import Arguments, Function
from engine.expressions.types.types import DOUBLE
from engine.expressions.values import evaluation_errors as gaps
from engine.expressions.values.once import once
from engine.expressions.values.operands import ExpressionInvalid, Operand


def pi(_arguments: Arguments) -> Operand:
    return Operand(pl.lit(math.pi, dtype=DOUBLE.polars), DOUBLE)


def unbounded(name: str, build: Callable[..., pl.Expr]) -> Callable[[Arguments], Operand]:
    """Compile what may give NaN or infinity."""
    return lambda arguments: Operand(build(*[given(name, argument, DOUBLE) for argument in arguments]), DOUBLE)


def _of_base(base: pl.Expr, value: pl.Expr) -> pl.Expr:
    def build(b: pl.Expr, v: pl.Expr) -> pl.Expr:
        return (
            pl.when(b.is_null() | v.is_null())
            .then(None)
            .when((b <= 0.0) | (b == 1.0))
            .then(math.nan)
            .otherwise(v.log() / b.log())
        )

    return once(build, base, value)


def _log(*values: pl.Expr) -> pl.Expr:
    return values[0].log() if len(values) == 1 else _of_base(*values)


def _pair(
    name: str, takes: str, build: Callable[..., pl.Expr], doc: str, where: str, *examples: Example
) -> tuple[Function, Function]:
    """Return the entry of a function, and ksqlDB's; ``where`` says where they differ."""
    own, theirs = f"{name}(", f"ksql_{name}("
    shown = tuple(Example(each.expression.replace(own, theirs), each.gives) for each in examples if each.gives is not None)
    return (
        Function(
            name, takes, "double", f"{doc}; NULL {where}.", examples, of_double(name, build), gaps=gaps.without_result("outside_domain")
        ),
        Function(
            f"ksql_{name}", takes, "double", f"{doc}, as ksqlDB gives it: NaN or infinity {where}.", shown, unbounded(f"ksql_{name}", build),
            ksqldb=(name.upper(),),
        ),
    )  # fmt: skip


def _plain(name: str, takes: str, build: Callable[..., pl.Expr], doc: str, *examples: Example) -> Function:
    return Function(name, takes, "double", f"{doc}.", examples, of_double(name, build), ksqldb=(name.upper(),))


ANGLES: Sequence[Function] = (
    Function("pi", "", "double", "The number π.", (Example("pi()", math.pi),), pi, ksqldb=("PI",)),
    _plain("sin", "x: number", lambda e: e.sin(), "The sine of an angle in radians", Example("sin(0)", 0.0)),
    _plain("cos", "x: number", lambda e: e.cos(), "The cosine of an angle in radians", Example("cos(0)", 1.0)),
    _plain("tan", "x: number", lambda e: e.tan(), "The tangent of an angle in radians", Example("tan(0)", 0.0)),
    *_pair(
        "cot", "x: number", lambda e: 1.0 / e.tan(), "The cotangent of an angle in radians", "of zero",
        Example("round(cot(pi() / 4), 9)", 1.0), Example("cot(0)", None),
    ),
    *_pair(
        "asin", "x: number", lambda e: e.arcsin(), "The angle of that sine, in radians", "below -1 and above 1",
        Example("asin(0)", 0.0), Example("asin(2)", None),
    ),
    *_pair(
        "acos", "x: number", lambda e: e.arccos(), "The angle of that cosine, in radians", "below -1 and above 1",
        Example("acos(1)", 0.0), Example("acos(2)", None),
    ),
    _plain("atan", "x: number", lambda e: e.arctan(), "The angle of that tangent, in radians", Example("atan(0)", 0.0)),
    _plain(
        "atan2", "y: number, x: number", pl.arctan2, "The angle of the point (x, y) in radians, -π to π", Example("atan2(0, 1)", 0.0),
    ),
    *_pair("sinh", "x: number", lambda e: e.sinh(), "The hyperbolic sine", "where it fits no double", Example("sinh(0)", 0.0)),
    *_pair("cosh", "x: number", lambda e: e.cosh(), "The hyperbolic cosine", "where it fits no double", Example("cosh(0)", 1.0)),
    _plain("tanh", "x: number", lambda e: e.tanh(), "The hyperbolic tangent", Example("tanh(0)", 0.0)),
    _plain("degrees", "x: number", lambda e: e.degrees(), "An angle of radians in degrees", Example("degrees(pi())", 180.0)),
    _plain("radians", "x: number", lambda e: e.radians(), "An angle of degrees in radians", Example("radians(180)", math.pi)),
    _plain("cbrt", "x: number", lambda e: e.cbrt(), "The cube root", Example("cbrt(27)", 3.0)),
    *_pair(
        "log", "base?: number, x: number", _log, "The logarithm to a base, without one the natural one",
        "for zero and below, and for the base 1", Example("round(log(2, 8), 9)", 3.0), Example("log(1)", 0.0), Example("log(0)", None),
    ),
    Function(
        "ksql_sqrt", "x: number", "double", "The square root, as ksqlDB gives it: NaN below zero.", (Example("ksql_sqrt(9)", 3.0),),
        unbounded("ksql_sqrt", lambda e: e.sqrt()), ksqldb=("SQRT",),
    ),
    Function(
        "ksql_ln", "x: number", "double", "The natural logarithm, as ksqlDB gives it: -infinity for zero, NaN below.",
        (Example("ksql_ln(1)", 0.0),), unbounded("ksql_ln", lambda e: e.log()), ksqldb=("LN",),
    ),
    Function(
        "ksql_exp", "x: number", "double", "e to the power of x, as ksqlDB gives it: infinity where it fits no double.",
        (Example("ksql_exp(0)", 1.0),), unbounded("ksql_exp", lambda e: e.exp()), ksqldb=("EXP",),
    ),
    Function(
        "ksql_power", "base: number, exponent: number", "double",
        "The base to the power of the exponent, as ksqlDB gives it: NaN or infinity where that is no number.",
        (Example("ksql_power(2, 10)", 1024.0),), unbounded("ksql_power", lambda a, b: a.pow(b)), ksqldb=("POWER",),
    ),
)  # fmt: skip


_KILOMETRES: Final = ("km", "kilometer", "kilometers", "kilometre", "kilometres")
_MILES: Final = ("mi", "mile", "miles")
_RADIUS_KM: Final = 6371.0
_RADIUS_MILES: Final = 3959.0
"""Of the earth as a ball."""


def distance(arguments: Arguments) -> Operand:
    """Compile ``geo_distance`` by the haversine formula; NULL where a place is none, or the unit unknown."""
    places = [given("geo_distance", argument, DOUBLE) for argument in arguments[:4]]
    apart = once(_angle, *places)
    if len(arguments) == len(places):
        return Operand(apart * _RADIUS_KM, DOUBLE)
    (unit,) = texts_of("geo_distance", arguments[4:])
    written = arguments[4].literal
    if isinstance(written, str) and written.strip().lower() not in ("", *_KILOMETRES, *_MILES):
        raise ExpressionInvalid("type_mismatch", f"geo_distance gives km or miles, not {written[:40]!r}")
    return Operand(apart * once(_radius, unit.str.strip_chars().str.to_lowercase()), DOUBLE)


def _radius(unit: pl.Expr) -> pl.Expr:
    is_default = unit.is_null() | unit.is_in(["", *_KILOMETRES])
    return pl.when(is_default).then(_RADIUS_KM).when(unit.is_in(_MILES)).then(_RADIUS_MILES)


def _angle(latitude: pl.Expr, longitude: pl.Expr, other_latitude: pl.Expr, other_longitude: pl.Expr) -> pl.Expr:
    is_place = pl.all_horizontal(
        [each.is_between(-90.0, 90.0) for each in (latitude, other_latitude)]
        + [each.is_between(-180.0, 180.0) for each in (longitude, other_longitude)]
    )
    across = ((other_latitude - latitude).radians() / 2).sin().pow(2)
    along = ((other_longitude - longitude).radians() / 2).sin().pow(2)
    share = across + along * latitude.radians().cos() * other_latitude.radians().cos()
    return pl.when(is_place).then(2.0 * share.clip(0.0, 1.0).sqrt().arcsin())


def _record(failures: gaps.Gaps, arguments: Arguments, result: Operand) -> None:
    gaps.without_result("outside_domain")(failures, arguments[:4], result)


PLACES: Sequence[Function] = (
    Function(
        "geo_distance", "latitude: number, longitude: number, latitude_2: number, longitude_2: number, unit?: string", "double",
        "How far two places are apart on the earth as a ball, in km or miles, by latitudes and longitudes in degrees.",
        (Example("round(geo_distance(0, 0, 0, 90), 3)", 10007.543), Example("geo_distance(91, 0, 0, 0)", None)), distance,
        gaps=_record, ksqldb=("GEO_DISTANCE",),
    ),
)  # fmt: skip

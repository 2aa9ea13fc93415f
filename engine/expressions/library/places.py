"""Functions of places on the earth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from engine.expressions.documented import Example
from engine.expressions.library.arguments import given, texts_of
from engine.expressions.library.entry import Arguments, Function
from engine.expressions.types.types import DOUBLE
from engine.expressions.values import evaluation_errors as gaps
from engine.expressions.values.once import once
from engine.expressions.values.operands import ExpressionInvalid, Operand

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

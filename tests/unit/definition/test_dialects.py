"""Expressions of the dialect ksqldb, written out in the standard language."""

from __future__ import annotations

from decimal import Decimal

import polars as pl
import pytest

from engine.definition.dialects import elaborated, elaborated_text, moment_of
from engine.definition.queries import QueryDefinition
from engine.expressions.expressions import compile_scalar
from engine.expressions.types.types import BIGINT, INT, Schema, decimal


def _definition(**fields: object) -> QueryDefinition:
    return QueryDefinition.model_validate(
        {"name": "q", "dialect": "ksqldb", "from": {"stream": "rides", "as": "r"}, "into": {"stream": "out"}, **fields}
    )


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("r.fare = 3", "COALESCE(r.fare = 3, FALSE)"),
        ("NOT r.fare IN (1, 2)", "NOT COALESCE(ONE_OF(r.fare, '1', '2'), FALSE)"),
        ("r.fare IN (-1, '2', NULL, r.toll)", "COALESCE((ONE_OF(r.fare, '-1', '2') OR r.fare IN (r.toll)), FALSE)"),
        ("ARRAY[NULL, r.fare, '1', 2]", "KSQL_ARRAY(NULL, r.fare, '1', 2)"),
        ("ARRAY['a', 'b', r.city]", "KSQL_ARRAY('a', 'b', r.city)"),
        ("ARRAY[1, 2, r.fare]", "ARRAY[1, 2, r.fare]"),
        ("r.fare IN (r.toll)", "COALESCE(r.fare IN (r.toll), FALSE)"),
        ("r.fare IN (NULL)", "COALESCE(FALSE, FALSE)"),
        ("r.city LIKE r.zone", "COALESCE(r.city LIKE r.zone ESCAPE '', FALSE)"),
        ("r.city LIKE 'a\\_'", "COALESCE(r.city LIKE 'a\\_' ESCAPE '', FALSE)"),
        ("r.city NOT LIKE 'A%'", "NOT COALESCE(r.city LIKE 'A%', FALSE)"),
        ("CASE WHEN r.fare > 1 THEN 'a' ELSE 'b' END", "CASE WHEN r.fare > 1 THEN 'a' ELSE 'b' END"),
        ("r.city + '-' + r.zone", "PLUS(r.city, '-', r.zone)"),
        ("r.fare IS NULL", "r.fare IS NULL"),
        ("UCASE(r.city)", "UPPER(r.city)"),
        ("CAST(r.fare AS INTEGER)", "KSQL_CAST(r.fare, 'int')"),
        ("CAST(r.fare AS TIMESTAMP)", "KSQL_CAST(r.fare, 'timestamp')"),
        ("CAST('2013-01-01' AS TIMESTAMP)", "CAST('2013-01-01' AS timestamp)"),
        ("AS_VALUE(r.city)", "(r.city)"),
        ("CAST(r.fare AS array<int>)", "KSQL_CAST(r.fare, 'array<int>')"),
        ("ARRAY[r.fare, '2']", "KSQL_ARRAY(r.fare, '2')"),
        ("ARRAY[r.fare, 2]", "ARRAY[r.fare, 2]"),
        ("MAP(NULL := 1)", "MAP('null' := 1)"),
        ("CAST(r.fare AS double)", "CAST(r.fare AS double)"),
        ("r.$event_time_ms > '2013-01-02'", None),
    ],
)
def test_a_value_is_written_out(written: str, wanted: str | None) -> None:
    if wanted is None:
        written, wanted = "r.\"$event_time_ms\" > '2013-01-02'", 'COALESCE(r."$event_time_ms" > 1357084800000, FALSE)'
    found = elaborated(_definition(select={"X": written})).select
    assert found is not None
    assert found["X"].lower() == wanted.lower()


def test_a_condition_needs_no_false_for_null() -> None:
    found = elaborated(_definition(where="r.fare > 3 AND (r.city = 'Rome' OR NOT r.fare < 9)")).where
    assert found == "r.fare > 3 AND (r.city = 'Rome' OR NOT coalesce(r.fare < 9, FALSE))"


def test_equalities_of_a_join_stay() -> None:
    definition = _definition(joins=[{"table": "zones", "as": "z", "on": "LCASE(r.zone) = z.id"}])
    assert elaborated(definition).joins[0].on == "lower(r.zone) = z.id"


def test_a_standard_definition_stays_as_it_is() -> None:
    definition = _definition(where="fare = 3").model_copy(update={"dialect": "standard"})
    assert elaborated(definition) is definition


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1970-01-01T00:00:01", 1000),
        ("1970", 0),
        ("1970-01-02", 86_400_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("soon", None),
        ("", None),
    ],
)
def test_times_may_end_early(text: str, wanted: int | None) -> None:
    assert moment_of(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted", "kind"),
    [
        ("7 / 2", 3, "int"),
        ("m / 3", Decimal("0.41666667"), "decimal(15,13)"),
        ("m / 0", None, "decimal(15,13)"),
        ("m % 0.4", Decimal("0.05"), "decimal(2,2)"),
        ("(0 - m) % 0.4", Decimal("-0.05"), "decimal(2,2)"),
    ],
)
def test_quotients_of_decimals_are_decimals(text: str, wanted: object, kind: str) -> None:
    scalar = compile_scalar(elaborated_text(text), Schema((("m", decimal(4, 2)),)))
    (found,) = pl.DataFrame({"m": [Decimal("1.25")]}, schema={"m": pl.Decimal(4, 2)}).select(scalar.expr.alias("found"))["found"]
    assert str(scalar.type) == kind
    assert found == wanted if not isinstance(wanted, Decimal) else abs(found - wanted) < Decimal("1e-8")


@pytest.mark.parametrize(
    ("text", "wanted", "kind"),
    [
        ("n * 2", 2_000_000, "int"),
        ("n + 1 - n", 1, "int"),
        ("-n", -1_000_000, "int"),
        ("n * n", None, "int"),
        ("n % 7", 1, "int"),
        ("n * b", 5_000_000, "bigint"),
        ("n * 0.5", 500_000.0, "double"),
        ("-b", -5, "bigint"),
    ],
)
def test_ints_stay_ints(text: str, wanted: object, kind: str) -> None:
    scalar = compile_scalar(elaborated_text(text), Schema((("n", INT), ("b", BIGINT))))
    (found,) = pl.DataFrame({"n": [1_000_000], "b": [5]}, schema={"n": pl.Int32, "b": pl.Int64}).select(scalar.expr.alias("x"))[
        "x"
    ]
    assert (found, str(scalar.type)) == (wanted, kind)


def test_a_day_may_end_at_24() -> None:
    assert moment_of("2013-01-01T24") == moment_of("2013-01-02")
    assert moment_of("2013-01-01T24:30") is None

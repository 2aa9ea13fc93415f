"""What is wrong with the parameters of a request is reported at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.errors.app_errors import BadRequest
from app.http.parameters import ParameterFaults, bad_parameter, unknown_parameter
from app.reads.parameters import RowsParameters
from app.reads.row_filters import parse_filters
from engine.expressions.types.types import STRING, Schema, parse_type


def faults_of(check: Callable[[], object]) -> list[tuple[str, str]]:
    with pytest.raises(BadRequest) as caught:
        check()
    return [(fault.pointer, fault.code) for fault in caught.value.faults]


@pytest.mark.parametrize(
    ("given", "pointers"),
    [
        ({"window_from": "x", "window_to": "y", "as_of": "noon"}, ["?as_of", "?window_from", "?window_to"]),
        ({"from": "x", "to": "y", "window_to": "z"}, ["?from", "?to", "?window_to"]),
        ({"from": "x", "as_of": "y"}, ["?as_of", "?as_of"]),
        ({"timeout": 5, "max_staleness": "5", "as_of": "noon"}, ["?as_of", "?timeout", "?max_staleness"]),
        ({"min_position": "9", "max_staleness": "5"}, ["?min_position", "?max_staleness"]),
    ],
)
def test_all_wrong_parameters_of_a_read_are_reported_at_once(given: dict[str, object], pointers: list[str]) -> None:
    assert [pointer for pointer, _ in faults_of(RowsParameters.model_validate(given).asked)] == pointers


def test_all_wrong_conditions_are_reported_at_once() -> None:
    columns = Schema((("origin", STRING), ("flights", parse_type("int"))))
    given = [("key.flights", "5"), ("where.airport", "JFK"), ("where.flights.like", "1"), ("where.flights.ge", "many")]
    given += [("where.origin", "JFK"), ("where.origin", "EWR")]
    assert faults_of(lambda: parse_filters(given, columns, ("origin",))) == [
        ("?key.flights", "unknown_parameter"),
        ("?where.airport", "unknown_parameter"),
        ("?where.flights.like", "unknown_parameter"),
        ("?where.flights.ge", "bad_parameter"),
        ("?where.origin", "bad_parameter"),
    ]


def test_faults_of_one_code_keep_it_and_a_name_that_is_none_is_suggested() -> None:
    faults = ParameterFaults()
    with faults.part():
        raise unknown_parameter(["limt"], ["cursor", "limit"])
    with pytest.raises(BadRequest, match=r"limt \(did you mean limit\?\); this path takes cursor, limit") as caught:
        faults.raise_all()
    assert caught.value.code == "unknown_parameter"
    with faults.part():
        raise bad_parameter("order", "is neither asc nor desc")
    with pytest.raises(BadRequest, match=r"unknown parameter limt.*; order: is neither asc nor desc") as caught:
        faults.raise_all()
    assert (caught.value.code, len(caught.value.faults)) == ("bad_parameter", 2)
    ParameterFaults().raise_all()

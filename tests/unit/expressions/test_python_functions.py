"""Functions in Python: values, failures row by row, bounds of time and memory, and what a text alone cannot do."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest

from engine.errors import PythonFailed
from engine.expressions.expressions import compile_scalar
from engine.expressions.python_functions import (
    _KNOWN,
    MAX_ENDED,
    MOST_LOST_S,
    FunctionDefinition,
    KnownFunction,
    _Run,
    known_functions,
    with_digests,
)
from engine.expressions.syntax import parse, render
from engine.expressions.types.types import DOUBLE, INT, STRING, Schema
from engine.expressions.values.operands import ExpressionInvalid
from engine.processes import python_functions
from engine.processes.function_times import taken_function_ms
from engine.processes.python_functions import Runnable
from engine.runtime.limits.watchdog import STALL_S

SCHEMA = Schema((("a", DOUBLE), ("b", STRING), ("n", INT)))
ROWS = pl.DataFrame({"a": [1.0, None, 3.0, 4.0], "b": ["x", "yy", None, "z"], "n": [1, 2, 3, 4]}, schema=SCHEMA.polars())


@pytest.fixture(autouse=True, scope="module")
def _ended() -> Iterator[None]:
    yield
    python_functions.close_all()


def function(body: str, parameters: dict[str, str] | None = None, returns: str = "int", **more: Any) -> FunctionDefinition:
    return FunctionDefinition.model_validate({"parameters": parameters or {"n": "int"}, "returns": returns, "body": body, **more})


def evaluated(made: FunctionDefinition, call: str = "f(n)") -> tuple[list[Any], list[bool]]:
    known_functions({"f": made})
    scalar = compile_scalar(render(with_digests(parse(call), {"f": made})), SCHEMA)
    (gap,) = scalar.gaps
    assert gap.reason == "function_failed"
    return ROWS.select(scalar.expr).to_series().to_list(), ROWS.select(gap.is_met).to_series().to_list()


def test_an_expression_is_computed_over_whole_columns() -> None:
    made = function("a * 2 + b.str.len_chars()", {"a": "double", "b": "string"}, "double")
    assert evaluated(made, "f(a, b)") == ([3.0, None, None, 9.0], [False] * 4)


def test_a_body_of_several_lines_is_a_function() -> None:
    assert evaluated(function("\n    doubled = n * 2\n    return doubled + 1\n"))[0] == [3, 5, 7, 9]


def test_what_fails_is_null_row_by_row_and_counted() -> None:
    made = function("if (n == 3).any():\n    raise ValueError('three')\nreturn n + 1")
    assert evaluated(made) == ([2, 3, None, 5], [False, False, True, False])


def test_a_call_that_takes_too_long_is_ended() -> None:
    made = function("while (n == 1).any():\n    pass\nreturn n + 1", timeout="2s")
    known_functions({"f": made})
    scalar = compile_scalar(render(with_digests(parse("f(n)"), {"f": made})), SCHEMA)
    assert ROWS.head(2).select(scalar.expr).to_series().to_list() == [None, 3]


def test_a_call_that_takes_too_much_memory_fails() -> None:
    made = function("x = bytearray(8 << 30)\nreturn n", memory_bytes=64 << 20)
    assert evaluated(made) == ([None] * 4, [True] * 4)


def test_a_failure_can_stop_the_query() -> None:
    made = function("1 / 0", on_error="stop")
    known_functions({"f": made})
    scalar = compile_scalar(render(with_digests(parse("f(n)"), {"f": made})), SCHEMA)
    with pytest.raises(PythonFailed, match="the function f failed: ZeroDivisionError"):
        ROWS.select(scalar.expr)


def test_another_number_of_values_is_a_failure() -> None:
    assert evaluated(function("n.head(2)"))[1] == [False] * 4, "by halves it fits"
    assert evaluated(function("[1, 2, 3]"))[1] == [True] * 4


def test_a_text_alone_brings_no_function_along() -> None:
    for text in ("python_function('0123', n)", "python_function(n)", "python_function()"):
        with pytest.raises(ExpressionInvalid, match="there is no function"):
            compile_scalar(text, SCHEMA)


def test_a_plan_that_is_sent_makes_its_functions_known() -> None:
    (known,) = known_functions({"f": function("n - 1")})
    sent = pickle.dumps(known)
    del _KNOWN[known.definition.digest]
    received = pickle.loads(sent)  # noqa: S301 - our own bytes
    assert isinstance(received, KnownFunction)
    assert _KNOWN[known.definition.digest] == received


@pytest.mark.parametrize("call", ["f()", "f(n, n)", "f(b)"])
def test_arguments_are_checked(call: str) -> None:
    made = function("n")
    known_functions({"f": made})
    with pytest.raises(ExpressionInvalid) as caught:
        compile_scalar(render(with_digests(parse(call), {"f": made})), SCHEMA)
    assert caught.value.code == "type_mismatch"


def test_a_value_of_another_type_than_declared_is_null_and_counted() -> None:
    made = function("['7', 'x', None, '8']")
    assert evaluated(made) == ([7, None, None, 8], [False, True, False, False])
    for body in ("[[1]] * len(n)", "pl.Series([{'q': 1}] * len(n))"):
        assert evaluated(function(body)) == ([None] * 4, [True] * 4)


def test_a_value_of_another_type_stops_where_failures_do() -> None:
    made = function("['x'] * len(n)", on_error="stop")
    known_functions({"f": made})
    scalar = compile_scalar(render(with_digests(parse("f(n)"), {"f": made})), SCHEMA)
    with pytest.raises(PythonFailed, match="no int"):
        ROWS.select(scalar.expr)


def test_a_function_whose_process_ends_again_and_again_ends_its_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.expressions.python_functions.MAX_ENDED", 2)
    made = function("import os\nos._exit(1)")
    known_functions({"f": made})
    scalar = compile_scalar(render(with_digests(parse("f(n)"), {"f": made})), SCHEMA)
    with pytest.raises(PythonFailed, match="process ended"):
        ROWS.select(scalar.expr)


def test_a_function_that_hangs_on_every_row_soon_ends_its_query_and_is_named() -> None:
    hanging = Runnable("hanging", "while True:\n    pass", ("n",), most_s=0.5, most_bytes=64 << 20)
    run = _Run(hanging, INT, is_stop=False, name="f", most_lost_s=1.0)
    began_s = time.monotonic()
    with pytest.raises(PythonFailed, match=r"the function f failed: it took more than 0.5 s"):
        run.over(pl.DataFrame({"n": range(1_000)}).to_struct("rows"))
    assert time.monotonic() - began_s < MAX_ENDED * 0.5, "not as often as a process may end"


def test_time_that_calls_lose_is_bounded_before_their_worker_is_ended() -> None:
    default_s = FunctionDefinition.model_fields["timeout"].default / 1_000
    assert MOST_LOST_S + default_s < STALL_S


def test_the_time_that_a_query_waits_for_a_function_is_measured_by_its_name_and_taken_once() -> None:
    rows = pl.DataFrame({"n": [1]}).to_struct("rows")
    taken_function_ms()
    for name, seconds in (("sleeper", 0.3), ("sleeper", 0.2), ("quick", 0.0)):
        sleeping = Runnable(f"sleeping {seconds}", f"import time\ntime.sleep({seconds})\nreturn n", ("n",), 60.0, 64 << 20)
        _Run(sleeping, INT, is_stop=False, name=name).over(rows)
    taken = taken_function_ms()
    assert sorted(taken) == ["quick", "sleeper"]
    assert taken["sleeper"] >= 500
    assert taken_function_ms() == {}

"""The examples of the documentation: each is run, cut in several ways; and none would pass with another expectation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

import app.testing
from app.testing.case import Case, Expect, Slicing, read_case
from app.testing.comparing.rows import ExpectedRows, Row
from app.testing.documents import find_files, read_documents
from app.testing.expectations import Expectation
from app.testing.machines.engine_machine import EngineMachine
from app.testing.running import run_case
from engine.expressions.aggregates.aggregates import AggregateName

DIRECTORY = Path(app.testing.__file__).parent / "examples"
DOCUMENTS = [(document, place) for path in find_files([DIRECTORY]) for place, document in enumerate(read_documents(path))]
CASES = [read_case(document, place) for document, place in DOCUMENTS]
IN_ORDER = [read_case(document, place, tasks=1) for document, place in DOCUMENTS]
NAMES = [case.name for case in CASES]


@pytest.mark.parametrize("case", CASES, ids=NAMES)
@pytest.mark.parametrize("slicing", ["record", "whole", *(f"random:{seed}" for seed in range(3))])
def test_every_example_passes_with_the_tasks_of_its_definitions_however_it_is_cut(case: Case, slicing: str) -> None:
    assert run_case(case, EngineMachine(case, Slicing.parse(slicing))) == []


@pytest.mark.parametrize("case", IN_ORDER, ids=NAMES)
@pytest.mark.parametrize("slicing", ["record", "whole", "random:7"])
def test_every_example_passes_with_one_task_however_it_is_cut(case: Case, slicing: str) -> None:
    assert run_case(case, EngineMachine(case, Slicing.parse(slicing))) == []


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_every_example_fails_when_it_expects_something_else(case: Case) -> None:
    steps = tuple(
        replace(step, wanted=tuple(map(altered, step.wanted))) if isinstance(step, Expect) else step for step in case.steps
    )
    failures = run_case(replace(case, steps=steps), EngineMachine(case, Slicing()))
    parts = [part for wanted in case.expectations for part in (wanted.changes, wanted.rows, wanted.late, wanted.rejects) if part]
    assert len(failures) >= len(parts)


def altered(wanted: Expectation) -> Expectation:
    """Expect one row less where one is expected, and one more where none is."""

    def other(rows: ExpectedRows | None) -> ExpectedRows | None:
        return None if rows is None else replace(rows, rows=rows.rows[1:] or (() if rows.rows else (Row({}),)))

    return replace(
        wanted, changes=other(wanted.changes), rows=other(wanted.rows), late=other(wanted.late), rejects=other(wanted.rejects)
    )


def test_every_aggregate_function_has_an_example() -> None:
    calls = " ".join(text for case in CASES for query in case.queries for text in query.get("aggregate", {}).values())
    written = [name.replace("count_distinct", "count(distinct") for name in get_args(AggregateName)]
    assert [name for name in written if name not in calls] == []


def test_every_operator_has_an_example() -> None:
    kinds = {
        type(operator).__name__ for case in CASES for plan in case.plans for stage in plan.stages for operator in stage.operators
    }
    assert kinds >= {
        "StreamTableJoin", "StreamStreamJoin", "TableTableJoin", "ForeignKeyLookup", "TableFilter", "TableAggregation",
        "RunningAggregation", "WindowAggregation", "SessionAggregation", "SlidingAggregation", "TimeLimitSuppression",
        "WallClockSuppression",
    }  # fmt: skip

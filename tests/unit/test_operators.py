"""Every operator of a plan has its entries, and nothing else asks of which kind an operator is."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

import engine.plan.operators
from app.explain.rules.explainers import EXPLAINERS
from engine.definition.queries import QueryDefinition
from engine.operators import operators
from engine.operators.operator_kinds import KINDS
from engine.plan.build import build_plan
from engine.plan.operators.operator import Operator, StatefulOperator
from tests.branches import Branches
from tests.conftest import ROOT
from tests.stored.kinds import CATALOG, definition
from tests.stored.kinds import KINDS as STORED

OWN = ROOT / "engine/plan/operators"
ENTRIES = {ROOT / "engine/operators/operator_kinds.py", ROOT / "app/explain/rules/explainers.py"}


def classes() -> Iterator[type[Operator]]:
    """Yield the classes of operators, those that others are made from among them."""
    for module in pkgutil.iter_modules(engine.plan.operators.__path__):
        for _, found in inspect.getmembers(importlib.import_module(f"engine.plan.operators.{module.name}"), inspect.isclass):
            if issubclass(found, Operator) and found.__module__.endswith(module.name):
                yield found


ALL = set(classes())
SPECS = sorted(
    (each for each in ALL if not any(other is not each and issubclass(other, each) for other in ALL)),
    key=lambda each: each.__name__,
)


def test_every_operator_has_an_entry_where_it_runs_and_where_it_is_explained() -> None:
    assert {*KINDS} == {*EXPLAINERS} == {*SPECS}


@pytest.mark.parametrize("spec", SPECS)
def test_an_operator_that_keeps_state_has_a_name_and_moves_its_state(spec: type[Operator]) -> None:
    assert issubclass(spec, StatefulOperator) == (KINDS[spec].move is not None)


@pytest.mark.parametrize("spec", SPECS)
def test_what_may_be_edited_in_place_are_fields(spec: type[Operator]) -> None:
    assert {*spec.edited_in_place} <= {field.name for field in fields(spec)}


def test_every_operator_is_in_the_archive_of_stored_state_and_among_the_recorded_digests() -> None:
    plans = [build_plan(QueryDefinition.model_validate(definition(kind)), CATALOG) for kind in STORED]
    assert {type(operator) for plan in plans for stage in plan.stages for operator in stage.operators} == {*SPECS}


def running(base: type[operators.Operator] = operators.Operator) -> set[str]:
    """Return the names of the classes that run operators."""
    return {each.__name__ for each in base.__subclasses__()}.union(*map(running, base.__subclasses__()))


NAMES = ({each.__name__ for each in ALL} | running()) - {"Operator"}


def branches(text: str) -> list[tuple[int, str]]:
    finder = Branches(NAMES, ("operator", "spec"))
    finder.visit(ast.parse(text))
    return finder.found


@pytest.mark.parametrize(
    "text",
    [
        "isinstance(x, StreamTableJoin)", "isinstance(x, Filter | TableFilter)", "KINDS = (Filter, Projection)", "type(x) is Filter",
        "match x:\n case windows.WindowAggregation(size_ms=1): pass", "match x:\n case Filter(): pass", "Either = Filter | Projection",
        "getattr(operator, 'name', None)", "RULES = {SessionAggregation: 'W3'}", "f: int = {Aggregation}", "def f(x=Filter): pass",
    ],
)  # fmt: skip
def test_a_question_for_the_kind_of_an_operator_is_found(text: str) -> None:
    assert branches(text)


def test_making_and_naming_an_operator_is_no_question_for_its_kind() -> None:
    made = "class A(Aggregation):\n def f(self, x: Filter, *y: Projection) -> Filter:\n  z: Filter = Filter('a')\n  return z"
    assert branches(f"from a import Filter\n{made}") == []


def test_nobody_asks_for_the_kind_of_an_operator() -> None:
    """A branch on kinds would have to be found and extended for each new operator: give ``Operator`` a method with a default instead."""
    files = {path for folder in ("app", "engine") for path in (ROOT / folder).rglob("*.py")}
    found = {
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in files - ENTRIES
        if not path.is_relative_to(OWN)
        for line, name in branches(Path(path).read_text())
    }
    assert found == set()

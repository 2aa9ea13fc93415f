"""Names are the field's words: retired ones are in no module, class, function, column, log event, setting or metric.

``docs/inside/words.md`` says which word stands for which.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.db.tables import metadata
from app.settings.settings import Settings
from app.telemetry.metric_list import METRICS
from tests.conftest import ROOT

WORDS = """
alike anew barren bell carrier carriers culprit culprits doorbell doorkeeper edge fleet gate gates halving hopeless judge judged judges judging
leaf leaves lending lent lifted lifting lookout misfit misfits misread misses noted opened parting patience ride rides ring rings rung seen
settle settled settling stretch stretches surroundings taker taking told troubles verdict wanted wish wishes
"""
RETIRED = set(WORDS.split())
PACKAGES = ("engine", "app", "client/slackwater")


def parts(name: str) -> set[str]:
    """Return the words of a name, in lower case."""
    return {each.lower() for each in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)}


def files() -> Iterator[Path]:
    for package in PACKAGES:
        yield from (ROOT / package).rglob("*.py")


def names_in(path: Path) -> Iterator[str]:
    """Yield the names that a module gives: its own, of classes and functions, and the events that it logs."""
    yield path.stem
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str) and re.fullmatch(r"[a-z0-9_]+", first.value):
                yield first.value


LEVELS = {"debug", "info", "warning", "error", "exception"}


@pytest.mark.parametrize("package", PACKAGES)
def test_no_name_has_a_retired_word(package: str) -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in (ROOT / package).rglob("*.py")
        for name in names_in(path)
        if parts(name) & RETIRED
    }
    assert found == set()


def test_no_column_setting_or_metric_has_a_retired_word() -> None:
    columns = [f"{table.name}.{column.name}" for table in metadata.tables.values() for column in table.columns]
    names = [*columns, *Settings.model_fields, *(metric.name for metric in METRICS)]
    assert [name for name in names if parts(name) & RETIRED] == []


@pytest.mark.parametrize("name", ["SlotCarrier", "_wanted", "was_told", "carrier_ended"])
def test_a_retired_word_is_found(name: str) -> None:
    assert parts(name) & RETIRED


NAMED = re.compile(r"``((?:engine|app)(?:\.\w+)+)``")
"""A module, or a name in one, as docstrings and comments name it."""


def is_there(name: str) -> bool:
    """Whether a module of that name is there, or a module that has the name's last part."""
    path, last = ROOT.joinpath(*name.split(".")), name.rpartition(".")[2]
    if path.is_dir() or path.with_suffix(".py").exists():
        return True
    homes = [home for home in (path.parent.with_suffix(".py"), path.parent / "__init__.py") if home.exists()]
    return any(re.search(rf"\b{last}\b", home.read_text()) for home in homes)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_module_that_is_named_is_there(package: str) -> None:
    named = {(path, name) for path in (ROOT / package).rglob("*.py") for name in NAMED.findall(path.read_text())}
    assert {f"{path.relative_to(ROOT)}: {name}" for path, name in named if not is_there(name)} == set()

"""The list of errors is what the code raises: every code that is written anywhere where errors are made stands in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from app.errors import app_errors as errors
from app.errors.error_list import ERRORS, ErrorEntry
from tests.conftest import ROOT

REQUEST_ERRORS = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.AppError)}
PLACES = {
    "Fault": 1,
    "Problem": 1,
    "add": 1,
    "ShapeFault": 1,
    "ExpressionInvalid": 0,
    "PydanticCustomError": 0,
    "Refusal": 0,
    "Reason": 0,
    "ErrorReport": 0,
    "StatementRefused": 0,
    "StatementUnsupported": 0,
    "DefinitionWarning": 1,
    "_no_grace": 0,
}
"""What makes a fault → which argument is its code."""


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", ""), node


TABLES = {"engine/plan/building/suppressing.py"}
"""Files with tables of (code, sentence)."""


def raised() -> Iterator[tuple[str, str]]:
    """Yield (code, where it is written)."""
    for path in [*(ROOT / "app").rglob("*.py"), *(ROOT / "engine").rglob("*.py")]:
        if "testing" in path.parts:
            continue
        tree = ast.parse(path.read_text())
        if str(path.relative_to(ROOT)) in TABLES:
            for entry in (node for node in ast.walk(tree) if isinstance(node, ast.Tuple)):
                if isinstance(entry.elts[-1], ast.Constant) and " " in str(entry.elts[-1].value):
                    yield ast.literal_eval(entry.elts[0]), f"{path.relative_to(ROOT)}:{entry.lineno}"
        for name, node in calls(tree):
            place = 0 if name in REQUEST_ERRORS else PLACES.get(name)
            if place is None or len(node.args) <= place or (name == "add" and len(node.args) != 3):
                continue
            code = node.args[place]
            if isinstance(code, ast.Constant) and isinstance(code.value, str) and "_" in code.value and " " not in code.value:
                yield code.value, f"{path.relative_to(ROOT)}:{node.lineno}"
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                for line in node.body:
                    if (
                        isinstance(line, ast.Assign)
                        and ast.unparse(line.targets[0]) == "code"
                        and isinstance(line.value, ast.Constant)
                    ):
                        yield str(line.value.value), f"{path.relative_to(ROOT)}:{line.lineno}"


def test_every_code_that_is_raised_is_listed() -> None:
    found = dict(raised())
    assert len(found) > 100, "the walk finds them"
    assert {code: where for code, where in found.items() if code not in ERRORS} == {}


def test_every_listed_code_is_written_somewhere() -> None:
    texts = [
        path.read_text()
        for part in ("app", "engine")
        for path in (ROOT / part).rglob("*.py")
        if not path.name.endswith("error_list.py")
    ]
    made = {f"too_many_{what}" for text in texts for what in re.findall(r'(?:at_most\(\w+, |too_many\()"(\w+)"', text)}
    unwritten = {code for code in ERRORS if not any(f'"{code}"' in text for text in texts)}
    assert unwritten - made == set()


@pytest.mark.parametrize("entry", ERRORS.values(), ids=lambda entry: entry.code)
def test_an_entry_says_what_is_wrong_and_what_helps(entry: ErrorEntry) -> None:
    assert entry.meaning.endswith(".")
    assert entry.cure.endswith(".")
    assert entry.title

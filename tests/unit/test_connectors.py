"""Every connector has its entries, and nothing outside of its places asks which connector a source has."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator

import pytest

from engine.definition.sources.connector_list import DEFAULT, MODELS
from engine.sources.connector_kinds import KINDS
from tests.branches import Branches
from tests.conftest import ROOT

PLACES = {
    *(ROOT / "engine/sources" / name for name in KINDS),
    *(ROOT / f"engine/definition/{side}/{name}.py" for side in ("sources", "deliveries") for name in KINDS),
    *(ROOT / f"engine/deliveries/{name}" for name in ("kafka", "files.py", "delta")),
}
"""Folders and files that belong to one connector, or to one kind of output."""

ENTRIES = {
    ROOT / "engine/definition/sources/connector_list.py",
    ROOT / "engine/definition/deliveries/delivery_list.py",
    ROOT / "engine/sources/connector_kinds.py",
    ROOT / "engine/deliveries/delivery_kinds.py",
}

STORAGE = {"FeedRow", "Head", "Batch", "SequencedFeed", "ReplayReader"}
"""Of the built-in log: who keeps results there uses them, whatever connectors there are."""


def classes() -> Iterator[str]:
    """Yield the names of the classes in connectors' places."""
    for place in PLACES:
        for path in [place] if place.suffix else place.rglob("*.py"):
            if not path.exists():  # not every connector is an output, too
                continue
            own = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
            yield from (each for each, found in inspect.getmembers(own, inspect.isclass) if found.__module__ == own.__name__)


NAMESAKES = {"Run"}
"""Another class of the service is called so, too."""

NAMES = {*classes()} - STORAGE - NAMESAKES


class Names(ast.NodeVisitor):
    """Finds where the names of connectors are compared with, and texts that name a feed of another one than the default."""

    def __init__(self) -> None:
        self.found: list[tuple[int, str]] = []

    def visit_Compare(self, node: ast.Compare) -> None:
        for part in (node.left, *node.comparators):
            self._look(part, part.elts if isinstance(part, ast.Tuple | ast.List | ast.Set) else [part])
        self.generic_visit(node)

    def _look(self, at: ast.expr, parts: list[ast.expr]) -> None:
        named = [each.value for each in parts if isinstance(each, ast.Constant) and each.value in KINDS]
        self.found += [(at.lineno, str(name)) for name in named]

    def visit_MatchValue(self, node: ast.MatchValue) -> None:
        self._look(node.value, [node.value])

    def visit_Constant(self, node: ast.Constant) -> None:
        is_prefix = isinstance(node.value, str) and any(
            node.value.startswith(f"{name}:") for name in MODELS if name != DEFAULT.name()
        )
        if is_prefix:
            self.found.append((node.lineno, str(node.value)))


def branches(text: str) -> list[tuple[int, str]]:
    tree = ast.parse(text)
    classes, names = Branches(NAMES), Names()
    classes.visit(tree)
    names.visit(tree)
    return classes.found + names.found


def test_every_connector_has_a_folder_and_both_entries() -> None:
    assert {*KINDS} == {*MODELS}
    assert all((ROOT / "engine/sources" / name).is_dir() for name in KINDS)
    assert {type(kind.control).__module__.rsplit(".", 2)[1]: name for name, kind in KINDS.items()} == {
        name: name for name in KINDS
    }


@pytest.mark.parametrize(
    "text",
    [
        'feed.type == "log"', 'feed.type != "files"', 'body["type"] in ("files", "log")', 'match x:\n case "files": pass',
        'name.startswith("files:")', 'f"files:{path}"', "isinstance(x, FilesConnector)", "type(x) is LogConnector",
        "match x:\n case FilesPlace(): pass", "RULES = {LogReader: 1}",
    ],
)  # fmt: skip
def test_a_question_for_a_connector_is_found(text: str) -> None:
    assert branches(text)


@pytest.mark.parametrize("text", ["def f(x: FilesConnector) -> None: pass", 'x = {"type": "files"}', 'holds = "files"'])
def test_naming_a_connector_is_no_question_for_it(text: str) -> None:
    assert branches(text) == []


def test_nobody_asks_for_the_connector_of_a_source() -> None:
    """A branch would have to be found and extended for each new connector: give ``Traits``, ``FeedReader`` or ``Control`` a question instead."""
    files = {path for folder in ("app", "engine") for path in (ROOT / folder).rglob("*.py")}
    found = {
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in files - ENTRIES
        if not any(path.is_relative_to(place) for place in PLACES)
        for line, name in branches(path.read_text())
    }
    assert found == set()

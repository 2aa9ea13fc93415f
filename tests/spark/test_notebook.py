"""The notebook of the client, cell by cell, on a service with some days of the demo's data."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest
from slackwater import Client

from app.testing.machines.service import service
from examples.flights.data import load
from examples.flights.queries import JOIN, RELATIONS, WINDOWS
from tests.conftest import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

NOTEBOOK = ROOT / "docs" / "notebooks" / "flights.ipynb"
CHUNKS = 60
"""Both relations' first seven days or so."""


def cells() -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]


def shown(cell: str, names: dict[str, Any]) -> str:
    """Run a cell as a notebook does; return what it shows of its last expression."""
    tree = ast.parse(cell)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)  # noqa: S102 - our own notebook
    if last is None:
        return ""
    assert isinstance(last, ast.Expr)
    value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)  # noqa: S307 - our own notebook
    return str(value._repr_html_()) if hasattr(value, "_repr_html_") else repr(value)


def test_every_cell_does_what_the_text_says(monkeypatch: pytest.MonkeyPatch) -> None:
    with service() as running, Client(running.url) as client:
        for (kind, name), definition in RELATIONS.items():
            client.relation(kind, name).register(definition)
        for query in (JOIN, WINDOWS):
            client.queries.create(query)
        for chunk in load(1).chunks()[:CHUNKS]:
            client.relation(chunk.kind, chunk.relation).append(chunk.frame)
        for query in (JOIN, WINDOWS):
            client.query(query["name"]).wait_until("caught_up", timeout=400)
        monkeypatch.setenv("SLACKWATER_URL", running.url)
        names: dict[str, Any] = {}
        found = {cell: shown(cell, names) for cell in cells()}
    pictures = [text for text in found.values() if text.startswith("<svg")]
    assert len(pictures) == 2, "the tide chart and the lateness curve"
    assert "departures_with_weather" in pictures[0]
    assert "waiting" in pictures[0]
    assert "busy_routes" in found[cells()[1]] or "departures_with_weather" in found[cells()[1]]
    assert "The window is open until" in next(text for cell, text in found.items() if "explain" in cell)
    assert "valid" in next(text for cell, text in found.items() if "queries.validate" in cell)
    assert "an edit: in_place" in next(text for cell, text in found.items() if "preview" in cell)
    assert len(names["frame"]) > 300

"""The reference misses nothing: each page is held against the list that the service itself reads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
import slackwater
import typer.main
from slackwater.cli.program import cli as program

from app.cli.listing import COMMANDS
from app.errors.error_list import ERRORS
from app.telemetry.metric_list import METRICS
from engine.expressions.aggregates.aggregates import AGGREGATES
from engine.expressions.documented import TYPES
from engine.expressions.library.function_list import FUNCTIONS, TABLE_FUNCTIONS
from engine.expressions.library.operator_list import OPERATORS
from engine.expressions.pseudo_columns import PSEUDO_COLUMNS
from tools.guide.reference import reference
from tools.guide.reference.client import described_names
from tools.guide.reference.commands import panels
from tools.guide.reference.definitions import KINDS
from tools.guide.reference.errors import kinds
from tools.guide.reference.http import document, operations
from tools.guide.reference.settings import groups, meanings, own_fields, variable
from tools.guide.reference.statements import nodes


@pytest.fixture(scope="module")
def pages() -> Mapping[str, str]:
    return reference()


def headings(page: str) -> set[str]:
    return {found.replace("`", "") for found in re.findall(r"^#+ (.+)$", page, re.MULTILINE)}


def first_cells(page: str) -> list[str]:
    """Return what stands first in each row of tables, as it was before it was escaped; a bar in code font divides nothing."""
    rows = re.findall(r"^\| ((?:``.+?``|`[^`]*`|[^`])+?)(?<!\\) \|", page, re.MULTILINE)
    return [row.replace("\\|", "|") for row in rows]


def test_every_code_of_an_error_has_a_heading_a_meaning_and_a_cure(pages: Mapping[str, str]) -> None:
    assert {entry.kind for entry in ERRORS.values()} <= kinds()
    assert set(ERRORS) <= headings(pages["errors.md"])
    for entry in ERRORS.values():
        assert f"### {entry.code}\n\n{entry.meaning}\n\n**Cure:** {entry.cure}" in pages["errors.md"]


def test_every_setting_is_listed_and_says_what_it_means(pages: Mapping[str, str]) -> None:
    for _, path, model in groups():
        said = meanings(model)
        assert set(said) <= {*own_fields(model)}, f"{model.__name__} explains what it does not have"
        for name in own_fields(model):
            assert said.get(name), f"{model.__name__}.{name}: say in its docstring what it means"
            assert f"| `{variable((*path, name))}`<br>" in pages["settings.md"]


def test_every_metric_is_listed(pages: Mapping[str, str]) -> None:
    assert {f"`{metric.name}`" for metric in METRICS} <= set(first_cells(pages["metrics.md"]))


def test_every_request_has_a_heading_on_the_page_of_its_tag(pages: Mapping[str, str]) -> None:
    listed = [f"{method} {path}" for method, path, _ in operations(document())]
    assert len(listed) > 40
    found = set().union(*(headings(text) for name, text in pages.items() if name.startswith("http/")))
    assert set(listed) <= found
    assert all(f"`{each}`" in pages["http/index.md"] for each in listed)


def test_every_command_has_a_heading_and_its_options(pages: Mapping[str, str]) -> None:
    listed = [each for panel in panels().values() for each in panel]
    words = {path.split()[1] for path, _ in listed}
    assert words == {*typer.main.get_command(program).commands, *COMMANDS}  # type: ignore[attr-defined]
    assert {path for path, _ in listed} <= headings(pages["cli.md"])
    for _, command in listed:
        for parameter in command.params:
            if parameter.param_type_name == "option" and not parameter.hidden:
                assert re.search(rf"^\| `[^|]*{parameter.opts[0]}\b", pages["cli.md"], re.MULTILINE), parameter.opts


def test_every_name_that_the_client_exports_is_described(pages: Mapping[str, str]) -> None:
    exported = {name for name in slackwater.__all__ if not name.startswith("Async")}
    assert exported <= set(described_names())
    assert exported <= headings(pages["client.md"])
    methods = {f"Client.{name}" for name in vars(slackwater.Client) if not name.startswith("_")}
    assert methods <= headings(pages["client.md"])


def test_every_function_aggregate_operator_and_type_is_listed(pages: Mapping[str, str]) -> None:
    cells = first_cells(pages["functions.md"])
    for name in FUNCTIONS:
        assert any(cell.startswith(f"`{name}(") for cell in cells), name
    for each in (*AGGREGATES.values(), *OPERATORS, *PSEUDO_COLUMNS, *TABLE_FUNCTIONS):
        assert any(each.form in cell for cell in cells), each.form
    assert {f"`{each.form}`" for each in TYPES} <= set(first_cells(pages["types.md"]))


def test_every_field_of_a_definition_is_listed_below_its_model(pages: Mapping[str, str]) -> None:
    sections = dict(re.findall(r"^#+ (\w+)\n(.*?)(?=^#|\Z)", pages["definitions.md"], re.MULTILINE | re.DOTALL))
    for title, model in KINDS.items():
        schema: dict[str, Any] = model.model_json_schema()
        for heading, inner in (
            (title, schema),
            *((name, each) for name, each in schema["$defs"].items() if "properties" in each),
        ):
            assert {f"`{name}`" for name in inner["properties"]} <= set(first_cells(sections[heading])), heading


def test_every_statement_and_clause_has_its_form(pages: Mapping[str, str]) -> None:
    forms = [cell for cell in first_cells(pages["statements.md"]) if cell.startswith("`")]
    assert len(forms) == len(nodes()) > 30

"""What pages of the guide name is there: settings, metrics, commands, targets of make, reasons and codes, tests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main
from slackwater.cli.program import added, cli
from slackwater.settings import API_KEY_VARIABLE, CONTEXT_VARIABLE, URL_VARIABLE

from app.metric_list import METRICS
from app.settings import ENV_PREFIX, NESTING, Settings
from engine.connectors.connections.secret import VARIABLES
from tests.conftest import ROOT

PAGES = sorted((ROOT / "docs").rglob("*.md"))
OTHERS = {"SLACKWATER_FILES", "SLACKWATER_KAFKA_PLAIN_FETCH", API_KEY_VARIABLE, CONTEXT_VARIABLE, URL_VARIABLE}
"""Variables of docker-compose.yml, of the engine and of the client, which are no settings."""

EXAMPLES = {"insert_departures", "my_rides"}
"""Names that readers could give, in prose alone."""

SUFFIXES = ("_bucket", "_count", "_sum")
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
WORD = re.compile(r"`([a-z]+(?:_[a-z]+)+)`")
"""A code, a reason, a field: a word of ours in code font."""


@pytest.fixture(params=PAGES, ids=lambda path: str(path.relative_to(ROOT / "docs")))
def page(request: pytest.FixtureRequest) -> str:
    path: Path = request.param
    return path.read_text()


@pytest.fixture(scope="module")
def words() -> set[str]:
    """Every word of the code."""
    sources = [path for folder in ("app", "engine", "client/slackwater") for path in (ROOT / folder).rglob("*.py")]
    return set().union(*(re.findall(r"[a-z]+(?:_[a-z]+)+", path.read_text()) for path in sources))


def test_every_code_reason_and_field_is_a_word_of_the_code(page: str, words: set[str]) -> None:
    examples = set(re.findall(r"\w+", " ".join(FENCE.findall(page)).lower()))
    unknown = set(WORD.findall(FENCE.sub("", page))) - words - examples - EXAMPLES
    assert not unknown


def test_every_variable_is_a_setting(page: str) -> None:
    named = set(re.findall(rf"\b{ENV_PREFIX}[A-Z_]*[A-Z]\b", page)) - OTHERS
    users_own = {name for name in named if f"{name}_".startswith(VARIABLES)} - {"SLACKWATER_SECRET_KEY"}
    for variable in named - users_own:
        head, _, tail = variable.removeprefix(ENV_PREFIX).lower().partition(NESTING)
        assert head in Settings.model_fields, variable
        field = Settings.model_fields[head]
        assert not tail or tail in field.annotation.model_fields, variable  # type: ignore[union-attr]


def test_every_metric_is_one(page: str) -> None:
    known = {metric.name for metric in METRICS}
    for name in re.findall(r"\bslackwater_[a-z_]+\b", FENCE.sub("", page)):
        assert name in known or any(name.removesuffix(suffix) in known for suffix in SUFFIXES), name


def test_every_command_and_target_is_one(page: str) -> None:
    root: Any = typer.main.get_command(cli)
    for line in re.findall(r"(?:`|^|&& )slackwater ([a-z][a-z-]*)", page, re.MULTILINE):
        assert line in root.commands or line in added(), line
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:`|^)make ([a-z-]+)", page, re.MULTILINE)) <= targets


def test_every_file_that_is_named_is_there(page: str) -> None:
    for name in re.findall(r"\b(?:tests|app|engine|examples|deploy)/[\w/.-]*\.(?:py|yaml|yml|md|json)\b", page):
        assert (ROOT / name).exists(), name

"""What pages of the guide name is there: settings, metrics, commands, targets of make, reasons and codes, tests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main
from slackwater.cli.program import added, cli
from slackwater.settings import API_KEY_VARIABLE, CONTEXT_VARIABLE, URL_VARIABLE

from app.access.rules import RULES
from app.settings.settings import ENV_PREFIX, NESTING, Settings
from app.telemetry.metric_list import METRICS
from engine.definition.connections.secret import VARIABLES
from engine.expressions.durations import parse_duration
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
    sources = [path for folder in ("app", "engine", "client/slackwater", "examples") for path in (ROOT / folder).rglob("*.py")]
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


READMES = [ROOT / name / "README.md" for name in ("app", "engine", "deploy", "client")]
UNITS = {"s": 1_000, "minute": 60_000, "hours": 3_600_000, "days": 86_400_000, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
"""Of times in milliseconds, of sizes in bytes."""

DEFAULT = re.compile(
    rf"`{ENV_PREFIX}(?P<name>[A-Z0-9_]+)` \((?P<value>\d[\d,]*)(?: (?P<unit>{'|'.join(UNITS)})|(?P<word>[a-z]+))?[;)]"
)
"""A setting with its default behind it."""

LEAST_DEFAULTS = 15
"""So many there are at least, or none is found any more."""


def test_a_default_that_a_page_says_is_that_of_the_setting() -> None:
    told = [(path, found) for path in (*PAGES, *READMES) for found in DEFAULT.finditer(path.read_text())]
    assert len(told) >= LEAST_DEFAULTS
    for path, found in told:
        model: Any = Settings
        *heads, last = found["name"].lower().split(NESTING)
        for head in heads:
            model = model.model_fields[head].annotation
        default = model.model_fields[last].get_default(call_default_factory=True)
        if found["word"] is not None:
            assert default == found["value"] + found["word"], (path, found[0])
            continue
        said = int(found["value"].replace(",", "")) * UNITS.get(found["unit"], 1)
        in_base = parse_duration(default) if isinstance(default, str) else default * (1_000 if last.endswith("_s") else 1)
        assert in_base == said, (path, found[0], default)


TWICE = {
    "memory of a light query": (r"light query (?:takes|\|) (\d to \d) MB", ("performance.md", "operations/sizing.md")),
    "memory of a follower": (r"nothing to do \| (\d+ KiB)", ("performance.md", "operations/sizing.md")),
}
"""Figures that whoever plans a machine wants beside others, and whoever wants to know how fast it is, too."""


@pytest.mark.parametrize("name", TWICE)
def test_a_figure_that_stands_on_two_pages_is_the_same(name: str) -> None:
    pattern, pages = TWICE[name]
    found = [re.findall(pattern, (ROOT / "docs" / page).read_text()) for page in pages]
    assert all(len(each) == 1 for each in found), found
    assert len({each[0] for each in found}) == 1, found


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


ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
PATHS_OF_ROUTES = {rule.partition(" ")[2] for rule in RULES}
ROUTES = [
    re.compile("/".join("[^/]+" if part.startswith("{") else re.escape(part) for part in path.split("/")))
    for path in PATHS_OF_ROUTES
]
NAMED_PATH = re.compile(r"(?:GET|POST|PUT|PATCH|DELETE) (/v1/(?:\{\{[^}]*\}\}|[\w{}/-])+)")


@pytest.mark.parametrize("path", [*PAGES, *READMES, ALERTS], ids=lambda path: str(path.relative_to(ROOT)))
def test_every_path_that_is_named_is_a_route(path: Path) -> None:
    named = {found.rstrip("/") for found in NAMED_PATH.findall(path.read_text())}
    unknown = {each for each in named if not any(route.fullmatch(re.sub(r"\{[^/]*\}", "x", each)) for route in ROUTES)}
    assert not unknown

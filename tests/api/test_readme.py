"""The README's commands work as they stand: programs, variables, targets of make. ``tests/guide`` runs its requests."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import typer.main
from slackwater.cli.program import cli as client_cli

from app.cli.commands import cli
from app.settings.settings import ENV_PREFIX, NESTING, Settings
from engine.definition.connections.secret import VARIABLES
from tests.conftest import ROOT

READMES = ("README.md", "app/testing/README.md")
ACTIVATION = "source .venv/bin/activate"
ELSEWHERE = {"curl", "make", "export", "source", "docker", "spark-class"}
OURS = {"slackwater", "python"}


def text_of(readme: str) -> str:
    return (ROOT / readme).read_text()


def commands(readme: str) -> list[str]:
    """Return the commands of fenced blocks, continued lines joined; of transcripts what follows the prompt."""
    found: list[str] = []
    for kind, block in re.findall(r"```(bash|console)\n(.*?)```", text_of(readme), re.DOTALL):
        if kind == "console":
            found += [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]
            continue
        pending = ""
        for line in block.splitlines():
            pending = f"{pending}\n{line}" if pending else line
            if not pending.strip() or pending.lstrip().startswith("#"):
                pending = ""
            elif pending.count("'") % 2 == 0 and pending.count('"') % 2 == 0:
                found.append(pending)
                pending = ""
    return found


def words(command: str) -> list[str]:
    """Return a command's words without variables that are set before it."""
    parts = shlex.split(command, comments=True)
    while parts and re.fullmatch(r"[A-Z_]+=.*", parts[0]):
        parts.pop(0)
    return parts


@pytest.mark.parametrize("readme", READMES)
def test_every_command_is_found_by_a_shell_that_did_what_was_said_before(readme: str) -> None:
    text = text_of(readme)
    first = {words(command)[0]: command for command in reversed(commands(readme))}
    assert set(first) <= ELSEWHERE | OURS, "a program that the README does not install"
    for program in OURS & set(first):
        where = text.index(first[program].splitlines()[0])
        assert ACTIVATION in text[:where], f"{program} is not on the PATH before the environment is activated"


@pytest.mark.parametrize("readme", READMES)
def test_every_command_of_slackwater_exists(readme: str) -> None:
    named = re.findall(r"(?:`|^|&& |\$ )slackwater ([a-z][a-z-]*(?: [a-z]+)?)", text_of(readme), re.MULTILINE)
    ours: Any = typer.main.get_command(cli)
    client_s: Any = typer.main.get_command(client_cli)
    known = {**client_s.commands, **ours.commands}
    assert named
    for line in named:
        command, *rest = line.split()
        assert command in known, line
        below = getattr(known[command], "commands", {})
        assert not below or rest[0] in below, line


@pytest.mark.parametrize("readme", READMES)
def test_every_target_and_path_exists(readme: str) -> None:
    text = text_of(readme)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:`|^|\$ )make ([a-z-]+)", text, re.MULTILINE)) <= targets
    for command in commands(readme):
        for word in words(command):
            if word.startswith(("app/", "tests/")):
                assert (ROOT / word).exists(), command


def test_every_variable_that_is_named_is_a_setting_and_port_and_directory_are_named() -> None:
    named = set(re.findall(rf"\b{ENV_PREFIX}[A-Z_]*[A-Z]\b", text_of("README.md")))
    assert {"SLACKWATER_PORT", "SLACKWATER_DATA_DIR"} <= named
    users_own = {name for name in named if f"{name}_".startswith(VARIABLES)} - {"SLACKWATER_SECRET_KEY"}
    for variable in named - users_own:
        head, _, tail = variable.removeprefix(ENV_PREFIX).lower().partition(NESTING)
        field = Settings.model_fields[head]
        assert not tail or tail in field.annotation.model_fields, variable  # type: ignore[union-attr]

"""The one program: its commands, those of the service, and what it says where something is missing."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any, Final

import pytest
import slackwater.cli
import typer
from slackwater.cli.options.failing import INTERRUPTED
from slackwater.cli.options.invocation import ReportingCommand
from slackwater.cli.program import Program, cli
from typer.cli import get_docs_for_click
from typer.core import TyperGroup
from typer.testing import CliRunner

from app.cli.commands import application
from app.cli.listing import COMMANDS
from tests.conftest import ROOT

LISTING = """
import sys
from typer.testing import CliRunner
from slackwater.cli.program import cli
result = CliRunner().invoke(cli, ["--help"])
assert "serve" in result.stdout and "apply" in result.stdout, result.stdout
print(sorted(name for name in ("app.cli.commands", "polars", "pyspark", "uvicorn", "prompt_toolkit") if name in sys.modules))
"""


@pytest.fixture(autouse=True)
def _own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("SLACKWATER_URL", "SLACKWATER_API_KEY", "SLACKWATER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)


def test_both_packages_have_the_same_program() -> None:
    scripts = [tomllib.loads((ROOT / place / "pyproject.toml").read_text())["project"]["scripts"] for place in (".", "client")]
    assert scripts == [{"slackwater": "slackwater.cli:main"}] * 2


def test_the_service_lists_the_commands_that_it_has() -> None:
    group: Any = typer.main.get_command(application())
    assert {
        name: (command.help or "").partition(". ")[0].split("\n")[0].rstrip(".") for name, command in group.commands.items()
    } == {name: each.help.rstrip(".") for name, each in COMMANDS.items()}


def test_no_command_of_the_service_has_the_name_of_one_of_the_client() -> None:
    program: Any = typer.main.get_command(cli)
    assert isinstance(program, Program)
    assert set(program.commands) & set(COMMANDS) == set()
    assert set(program.list_commands(None)) == {*program.commands, *COMMANDS}


def test_listing_commands_imports_neither_the_service_nor_a_screen() -> None:
    done = subprocess.run([sys.executable, "-c", LISTING], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_a_command_of_the_service_is_the_services_own() -> None:
    result = CliRunner().invoke(cli, ["serve", "--help"])
    assert (result.exit_code, "--no-driver" in result.stdout) == (0, True)


ON_THIS_MACHINE: list[list[str]] = [
    ["backup", "copy"],
    ["config", "show"],
    ["doctor"],
    ["keys", "revoke", "first"],
    ["migrate"],
    ["restore", "copy"],
    ["serve"],
    ["test", "tests.yaml"],
]
NEVER_LOADED = """
import sys
from typer.testing import CliRunner
from slackwater.cli.program import cli
for arguments in {commands}:
    for option in (["--context", "prod"], ["--url", "http://127.0.0.1:9"], ["--key", "sw_x", "--url", "http://127.0.0.1:9"]):
        result = CliRunner().invoke(cli, [*option, *arguments])
        said = " ".join(result.stderr.split())
        named = " and ".join(each for each in ("--context", "--url", "--key") if each in option)
        assert result.exit_code == 2, (arguments, option, result.exit_code, said)
        assert f"slackwater {{arguments[0]}} works on this machine alone, whatever {{named}} names →" in said, said
print(sorted(name for name in ("app.cli.commands", "psycopg") if name in sys.modules))
"""


def test_a_command_of_this_machine_refuses_to_be_told_of_another_service_before_it_does_anything() -> None:
    assert {arguments[0] for arguments in ON_THIS_MACHINE} == {*COMMANDS}
    script = NEVER_LOADED.format(commands=ON_THIS_MACHINE)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_the_refusal_says_how_to_do_it_there_and_help_is_not_refused() -> None:
    refused = CliRunner().invoke(cli, ["--url", "http://127.0.0.1:9", "--json", "test", "tests.yaml"])
    assert "slackwater test FILES --url URL" in json.loads(refused.stderr)["error"]["cure"]
    assert "--no-driver" in CliRunner().invoke(cli, ["--context", "prod", "serve", "--help"]).stdout


def test_variables_and_the_context_in_use_are_not_for_commands_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACKWATER_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("SLACKWATER_CONTEXT", "prod")
    assert CliRunner().invoke(cli, ["config", "show"]).exit_code == 0


def commands(group: TyperGroup, above: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, f"{above}{name} ")
        else:
            yield f"{above}{name}", command


GOES_ON: Final = {"serve"}
"""Gives no answer: it goes on until it is stopped. What goes on is its log, which is JSON with SLACKWATER_LOG__FORMAT=json."""


def test_every_command_and_every_option_says_what_it_does_and_all_have_json() -> None:
    clients: Any = typer.main.get_command(cli)
    services: Any = typer.main.get_command(application())
    for name, command in (*commands(clients), *commands(services)):
        assert command.help, name
        assert {param.name for param in command.params if param.param_type_name == "option" and not param.help} == set(), name
    for name, command in commands(clients):
        assert {"as_json", "url", "key", "context"} <= {param.name for param in command.params}, name
    assert {name for name, command in commands(services) if "as_json" not in {param.name for param in command.params}} == GOES_ON
    assert all(isinstance(command, ReportingCommand) for _, command in (*commands(clients), *commands(services)))


def test_what_goes_on_for_ever_refuses_json_and_says_what_is_json() -> None:
    refused = CliRunner().invoke(cli, ["--json", "serve", "--port", "1"])
    assert (refused.exit_code, "SLACKWATER_LOG__FORMAT=json" in json.loads(refused.stderr)["error"]["cure"]) == (2, True)


def test_without_the_extra_the_program_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "slackwater.cli.program", raising=False)
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit, match=r"needs typer: pip install 'slackwater-client\[cli\]'"):
        slackwater.cli.main()


def test_ctrl_c_before_a_command_begins_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pressed(MetaPathFinder):
        def find_spec(self, fullname: str, *_: object) -> None:
            if fullname == "slackwater.cli.program":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "slackwater.cli.program", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Pressed(), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        slackwater.cli.main()
    assert ended.value.code == INTERRUPTED


def test_nobody_who_answers_is_an_exit_code_of_its_own() -> None:
    result = CliRunner().invoke(cli, ["get", "--url", "http://127.0.0.1:9", "--json"])
    assert result.exit_code == 4
    assert '"code": "unreachable"' in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["get", "wells"], "'wells' is no kind of thing"),
        (["get", "--context", "prod"], "there is no context 'prod'"),
        (["status", "--wait", "running"], "say which queries to wait for"),
        (["explain", "q", "a", "b=1"], "column=value"),
        (["append", "stream/s", "{"], "is no JSON"),
        (["append", "stream/s", "3"], "is no record"),
        (["load", "stream/s", "missing.csv"], "there is no file missing.csv"),
        (["delete"], "Missing argument"),
        (["top", "--by", "z"], "'z' is no order"),
        (["sql", "-v", "x"], "gives no value"),
        (["context", "add", "x"], "say where the service is"),
        (["status", "q", "--timeout", "0"], "--timeout says nothing without --wait"),
        (["pause", "q", "--timeout", "9"], "--timeout says nothing without --wait"),
        (["resume", "q", "--timeout", "9"], "--timeout says nothing without --wait"),
        (["stop", "q", "--timeout", "9"], "--timeout says nothing without --wait"),
        (["restart", "q", "--timeout", "9"], "--timeout says nothing without --wait"),
        (["late", "q", "--graces", "--reason", "late_dropped"], "--reason has no say beside --graces"),
        (["late", "q", "--graces", "--from", "2025-01-01T00:00:00Z", "--limit", "5"], "--from and --limit have no say"),
        (["late", "q", "--graces", "--to", "2025-01-01T00:00:00Z", "--input", "join"], "--input and --to have no say"),
        (["late", "q", "--graces", "--key-column", "a=1"], "--key-column has no say beside --graces"),
        (["replay", "q", "--id", "1", "--reason", "late_dropped", "--yes"], "--reason has no say beside --id"),
        (["replay", "q", "--id", "1", "--key-column", "a=1", "--yes"], "--key-column has no say beside --id"),
        (["apply", "absent", "--match", "a*", "--yes"], "--match says nothing without --prune"),
        (["diff", "absent", "--match", "a*"], "--match says nothing without --prune"),
        (["tail", "stream/s", "--cursor", "c", "--from", "latest"], "--from has no say beside --cursor"),
        (["sql", "-c", "SHOW STREAMS;", "--json", "-o", "csv"], "--output has no say beside --json"),
        (["context", "add", "x", "--url", "http://127.0.0.1:9", "--no-key", "--key", "sw_x"], "--key has no say beside --no-key"),
        (["context", "add", "x", "--url", "http://127.0.0.1:9", "--context", "y"], "--context has no say beside context add x"),
        (["context", "use", "x", "--url", "http://127.0.0.1:9"], "--url has no say beside context use: it asks no service"),
        (["context", "remove", "x", "--key", "sw_x"], "--key has no say beside context remove"),
    ],
)
def test_a_wrong_command_line_asks_nothing_of_the_service(arguments: list[str], said: str) -> None:
    url = [] if "--context" in arguments or arguments[0] == "context" else ["--url", "http://127.0.0.1:9"]
    result = CliRunner().invoke(cli, [*arguments, *url])
    assert (result.exit_code, said in " ".join(result.stderr.split())) == (2, True), result.stderr


@pytest.mark.parametrize("program", [cli, application()], ids=["program", "python -m app.cli"])
@pytest.mark.parametrize(
    ("arguments", "said", "cure"),
    [
        (["keys", "revoke"], "Missing argument", "slackwater keys revoke --help"),
        (["keys", "create", "a", "--role", "god"], "'god'", "slackwater keys create --help"),
        (["backup", "copy", "--nothing"], "--nothing", "slackwater backup --help"),
        (["nothing"], "'nothing'", "slackwater --help"),
        (["keys"], "--json", "slackwater keys --help"),
    ],
)
def test_what_the_parser_refuses_is_json_where_that_is_asked_for(
    program: typer.Typer, arguments: list[str], said: str, cure: str
) -> None:
    result = CliRunner().invoke(program, [*arguments, "--json"], prog_name="slackwater")
    assert (result.exit_code, result.stdout) == (2, "")
    error = json.loads(result.stderr)["error"]
    assert said in error["detail"]
    assert error["cure"].startswith(cure)
    as_text = CliRunner().invoke(program, arguments, prog_name="slackwater")
    assert as_text.exit_code == 2
    assert "Usage: slackwater" in as_text.stdout + as_text.stderr


def test_where_json_stands_and_what_stands_behind_two_dashes_counts() -> None:
    said = [
        json.loads(CliRunner().invoke(cli, words).stderr)["error"]["detail"]
        for words in (["--json", "delete"], ["delete", "--json"])
    ]
    assert said[0] == said[1]
    assert "Usage" in CliRunner().invoke(cli, ["top", "--nothing", "--", "--json"]).stderr
    assert json.loads(CliRunner().invoke(cli, ["--json", "keys"]).stderr)["error"]["detail"] == "Missing command."
    for words in (["--json", "--version"], ["--json", "get", "--help"]):
        assert CliRunner().invoke(cli, words).exit_code == 0


def commands_of(document: str) -> Iterator[list[str]]:
    for block in re.findall(r"```bash\n(.*?)```", document, re.DOTALL):
        for line in block.splitlines():
            for part in re.split(r" \|\|? ", line.replace(" 2>&1", "")):
                words = shlex.split(part, comments=True)
                if words[:1] == ["slackwater"]:
                    yield words[1:]


@pytest.mark.parametrize("arguments", list(commands_of((ROOT / "docs" / "guides" / "command-line.md").read_text())), ids=" ".join)
def test_every_command_of_the_document_can_be_read(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "--install-completion" in arguments:
        return
    command: Any = typer.main.get_command(cli)
    while isinstance(command, TyperGroup):
        if arguments[0].startswith("--"):  # before the command, with a value
            arguments = arguments[2:]
        name, *arguments = arguments
        command = command.get_command(typer.Context(command), name)
    command.make_context(command.name, arguments, parent=None)


def test_the_reference_is_made_of_the_program() -> None:
    program: Any = typer.main.get_command(cli)
    text = get_docs_for_click(obj=program, ctx=typer.Context(program, info_name="slackwater"), name="slackwater")
    assert [f"## `slackwater {name}`" in text for name in ("apply", "sql", "top", "context", "serve")] == [True] * 5
    assert "--no-driver" in text

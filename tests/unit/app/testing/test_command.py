"""``slackwater test`` as a user sees it: lines, differences, exit codes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from app.cli.commands import cli
from app.testing.machines.service import free_port
from tests.unit.app.testing.cases import ORDERS

PASSING = "name: copies\n" + ORDERS + "steps: [{orders: {sku: a, at: 1}}]\nexpect: {copy: [{sku: a}]}\n"
FAILING = "name: miscounts\n" + ORDERS + "steps:\n  - orders: {sku: a, at: 1}\nexpect:\n  copy: [{sku: b}]\n"


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the command runs: paths in its output are short."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["test", *arguments])


def lines(result: Result) -> list[str]:
    return [re.sub(r"\d+ ms$", "N ms", line) for line in result.output.splitlines()]


def test_tests_that_pass_are_one_line_each(directory: Path) -> None:
    (directory / "a.yaml").write_text(f"{PASSING}---\n{PASSING.replace('copies', 'copies again')}")
    result = run("a.yaml")
    assert lines(result) == ["passed  copies  N ms", "passed  copies again  N ms", "2 passed, 0 failed, seed 0"]
    assert result.exit_code == 0


def test_a_failure_is_shown_with_its_place_and_as_a_difference(directory: Path) -> None:
    (directory / "a.yaml").write_text(PASSING)
    (directory / "b.yaml").write_text(FAILING)
    result = run(".")
    assert lines(result) == [
        "passed  copies  N ms",
        "failed  miscounts  N ms",
        "  b.yaml:10 /expect/copy: changes of copied",
        "    --- expected",
        "    +++ found",
        "    @@ -1,1 +1,1 @@",
        "    -{sku: b}",
        "    +{sku: a}",
        "1 passed, 1 failed, seed 0",
    ]
    assert result.exit_code == 1


def test_a_file_that_cannot_be_read_does_not_keep_the_others_from_being_run(directory: Path) -> None:
    (directory / "a.yaml").write_text(PASSING.replace("from: {stream: orders}", "from: {stream: oders}"))
    (directory / "b.yaml").write_text(PASSING)
    result = run("a.yaml", "absent.yaml", "b.yaml")
    assert lines(result) == [
        "invalid copies",
        "  a.yaml:6 /queries/0/from/stream: there is no stream 'oders'; did you mean orders?",
        "invalid absent.yaml",
        "  absent.yaml: there is no such file",
        "passed  copies  N ms",
        "1 passed, 0 failed, 2 could not be run, seed 0",
    ]
    assert result.exit_code == 2


def test_markup_in_a_test_is_text(directory: Path) -> None:
    (directory / "a.yaml").write_text(PASSING.replace("name: copies", "name: '[red]copies[/]'"))
    assert lines(run("a.yaml"))[0] == "passed  [red]copies[/]  N ms"


def test_an_unknown_slicing_is_refused(directory: Path) -> None:
    (directory / "a.yaml").write_text(PASSING)
    assert run("a.yaml", "--slicing", "whole").exit_code == 0
    assert run("a.yaml", "--slicing", "thin").exit_code == 2


@pytest.mark.parametrize(
    ("options", "closing"),
    [
        (["--seed", "7"], "seed 7"),
        (["--slicing", "random:7"], "seed 7"),
        (["--slicing", "whole"], "0 failed"),
        (["--tasks", "1"], "0 failed"),
        (["--tasks", "2", "--seed", "7"], "seed 7"),
    ],
)
def test_the_closing_line_names_the_seed_that_cut_the_batches(directory: Path, options: list[str], closing: str) -> None:
    (directory / "a.yaml").write_text(PASSING)
    result = run("a.yaml", *options)
    assert result.exit_code == 0
    assert lines(result)[-1].endswith(f", {closing}")


@pytest.mark.parametrize(
    ("options", "detail"),
    [
        (["--seed", "1", "--slicing", "whole"], "leave out one of them"),
        (["--seed", "1", "--spark"], "a service slices the batches itself"),
        (["--slicing", "whole", "--url", "http://nowhere.invalid"], "a service slices the batches itself"),
        (["--spark", "--url", "http://nowhere.invalid"], "leave out --spark or --url"),
        (["--tasks", "0"], "--tasks"),
    ],
)
def test_options_that_cannot_be_together_are_refused(directory: Path, options: list[str], detail: str) -> None:
    (directory / "a.yaml").write_text(PASSING)
    result = CliRunner().invoke(cli, ["test", "a.yaml", *options], env={"COLUMNS": "400"})
    assert result.exit_code == 2
    assert detail in result.stderr


def test_with_the_option_the_order_across_keys_is_expected_too(directory: Path) -> None:
    """Results do not depend on the number of tasks (T1); sources have one partition with the option, and several without."""
    records = "steps: [{orders: [{sku: a, at: 1}, {sku: b, at: 2}]}]"
    (directory / "a.yaml").write_text(f"{ORDERS}{records}\nexpect: {{copy: [{{sku: b}}, {{sku: a}}]}}\n")
    assert run("a.yaml").exit_code == 0
    assert run("a.yaml", "--tasks", "1").exit_code == 1


def test_a_service_that_does_not_answer_is_told_from_a_failure(directory: Path) -> None:
    (directory / "a.yaml").write_text(PASSING)
    result = run("a.yaml", "--url", f"http://127.0.0.1:{free_port()}")
    assert result.stderr.startswith("error: the service failed: ")
    assert result.exit_code == 2

"""The commands of the service with ``--json``, before the command and behind it: what a program reads of them."""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Callable, Iterator
from contextvars import copy_context
from pathlib import Path
from typing import Any

import psycopg
import pytest
from slackwater.cli.program import cli
from typer.testing import CliRunner, Result

from tests.unit.app.testing.cases import ORDERS

Run = Callable[..., Result]
TESTS = "name: copies\n" + ORDERS + "steps: [{orders: {sku: a, at: 1}}]\nexpect: {copy: [{sku: SKU}]}\n"


@pytest.fixture
def run(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SLACKWATER_DATABASE_URL", dsn)
    monkeypatch.setenv("SLACKWATER_DATA_DIR", str(tmp_path / "data"))
    # What the commands set up for a process of their own, and for output that is closed behind them.
    ending, handlers = signal.getsignal(signal.SIGTERM), [*logging.getLogger().handlers]

    def running(*arguments: str, exits: int = 0) -> Result:
        result = copy_context().run(CliRunner().invoke, cli, arguments)
        assert result.exit_code == exits, (result.stdout, result.stderr, result.exception)
        return result

    yield running
    signal.signal(signal.SIGTERM, ending)
    logging.getLogger().handlers[:] = handlers


def told(result: Result) -> Any:
    return json.loads(result.stdout)


def test_keys_are_made_listed_and_revoked(run: Run, dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("TRUNCATE slackwater.api_key")
    assert told(run("--json", "keys", "list")) == []
    made = told(run("--json", "keys", "create", "team", "--role", "write", "--scope", "orders*", "--expires-in", "90d"))
    assert (made["name"], made["role"], made["scope"], made["key"][:11]) == ("team", "write", ["orders*"], made["prefix"])
    (listed,) = told(run("keys", "list", "--json"))
    assert listed == {name: value for name, value in made.items() if name != "key"}
    taken = json.loads(run("keys", "create", "team", "--json", exits=1).stderr)["error"]
    assert (taken["code"], "already" in taken["detail"]) == ("name_taken", True)
    assert told(run("keys", "revoke", "team", "--json")) == {"revoked": "team"}
    assert told(run("keys", "list", "--json"))[0]["revoked_at"] is not None


def test_settings_are_those_that_the_service_tells_and_a_wrong_one_is_an_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {each["name"]: each for each in told(run("--json", "config", "show"))["settings"]}
    assert settings["data_dir"]["origin"] == "environment"
    assert settings["port"] == {"name": "port", "variable": "SLACKWATER_PORT", "value": "8080", "origin": "default"}
    monkeypatch.setenv("SLACKWATER_PROT", "1")
    assert "SLACKWATER_PROT" in json.loads(run("config", "show", "--json", exits=2).stderr)["error"]["detail"]


def test_the_schema_is_told_as_it_was_and_as_it_is(run: Run) -> None:
    found = told(run("migrate", "--json"))
    assert found["schema"] == found["schema_before"]
    assert run("migrate").stdout == "the schema is current\n"


def test_a_database_that_does_not_answer_is_an_error_of_one_sentence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACKWATER_DATABASE_URL", "postgresql://nobody:pa55word@127.0.0.1:1/none")
    failed = run("migrate", "--json", exits=1)
    error = json.loads(failed.stderr)["error"]
    assert ("127.0.0.1" in error["detail"], "slackwater doctor" in error["cure"], "pa55word" in failed.stderr) == (
        True,
        True,
        False,
    )
    examined = told(run("--json", "doctor", exits=1))
    (wrong,) = (each for each in examined["findings"] if each["subject"] == "Database")
    assert (examined["ok"], wrong["ok"], "SLACKWATER_DATABASE_URL" in wrong["remedy"]) == (False, False, True)


def test_a_backup_says_what_is_in_it(run: Run, tmp_path: Path) -> None:
    made = told(run("--json", "backup", str(tmp_path / "copy")))
    assert (made["directory"], made["queries"]) == (str(tmp_path / "copy"), [])
    again = json.loads(run("backup", str(tmp_path / "copy"), "--json", exits=1).stderr)
    assert "exists already" in again["error"]["detail"]
    refused = json.loads(run("--json", "restore", str(tmp_path / "copy"), exits=1).stderr)
    assert "holds a Slackwater already" in refused["error"]["detail"]


def test_what_was_put_back_is_told(run: Run, empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = told(run("backup", str(tmp_path / "copy"), "--json"))
    monkeypatch.setenv("SLACKWATER_DATABASE_URL", empty)
    monkeypatch.setenv("SLACKWATER_DATA_DIR", str(tmp_path / "elsewhere"))
    assert told(run("restore", str(tmp_path / "copy"), "--json")) == {**made, "held_deliveries": 0}


def test_tests_are_told_with_their_differences(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(TESTS.replace("SKU", "a"))
    found = told(run("--json", "test", str(file)))
    assert ([each["state"] for each in found["tests"]], found["passed"], found["seed"]) == (["passed"], 1, 0)
    file.write_text(TESTS.replace("SKU", "b"))
    found = told(run("test", str(file), "--json", exits=1))
    (failure,) = found["tests"][0]["failures"]
    assert (found["failed"], failure["pointer"], failure["difference"][-2:]) == (1, "/expect/copy", ["-{sku: b}", "+{sku: a}"])
    found = told(run("test", str(tmp_path / "absent.yaml"), "--json", exits=2))
    assert found["tests"][0]["problems"] == [{"line": None, "pointer": "", "detail": "there is no such file"}]

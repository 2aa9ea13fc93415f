"""Keys by the command line; and a password and a key that must show up nowhere but where they were asked for."""

from __future__ import annotations

import re
from contextvars import copy_context
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import sqlalchemy as sa
from pydantic import SecretStr, ValidationError
from slackwater import Client, ServiceError
from typer.testing import CliRunner, Result

from app.cli.commands import cli
from app.cli.doctor import examine
from app.settings.settings import Settings
from tests.integration.test_api_serve import environment, run, serving, url

__all__ = ["environment"]
PASSWORD = "pw-Zx81MARKERq7"
STREAM = {"columns": {"n": "int"}, "connector": {"partitions": 1}}


@pytest.fixture
def with_password(dsn: str, environment: dict[str, str]) -> dict[str, str]:
    """The environment of a service whose database URL holds a password, which the database does not look at."""
    marked = sa.make_url(dsn).set(password=PASSWORD).render_as_string(hide_password=False)
    return {**environment, "SLACKWATER_DATABASE_URL": marked, "SLACKWATER_AUTH": "on", "SLACKWATER_LOG__LEVEL": "DEBUG"}


@pytest.fixture
def command(dsn: str, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.setenv("SLACKWATER_DATABASE_URL", dsn)
    with psycopg.connect(dsn) as connection:
        connection.execute("TRUNCATE slackwater.api_key")
    return CliRunner()


def keys(command: CliRunner, *arguments: str) -> Result:
    return copy_context().run(command.invoke, cli, ["keys", *arguments])  # whoever runs it is nobody in later tests


def test_keys_are_made_listed_and_revoked(command: CliRunner) -> None:
    made = keys(command, "create", "first", "--role", "admin", "--expires-in", "90d")
    key = made.stdout.strip()
    assert re.fullmatch(r"sw_\w{8}_\w{43}", key)
    assert "not shown again" in made.stderr
    again = keys(command, "create", "first")
    assert (again.exit_code, "(name_taken)" in again.stderr, "already" in again.stderr) == (1, True, True)
    listed = keys(command, "list").stdout
    assert key[:11] in listed
    assert key not in listed
    assert keys(command, "revoke", "first").exit_code == 0
    assert keys(command, "revoke", "first").exit_code == 1
    assert keys(command, "create", "First key").exit_code == 1
    assert keys(command, "create", "x", "--expires-in", "soon").exit_code == 2


def test_neither_a_password_nor_a_key_shows_up_anywhere(with_password: dict[str, str]) -> None:
    output = Path(with_password["SLACKWATER_DATA_DIR"], "out")
    seen: list[str] = []
    with serving(with_password):
        assert "slackwater keys create first --role admin" in output.read_text()
        made = run(with_password, "keys", "create", "first", "--role", "admin")
        key = made.stdout.strip()
        seen.append(made.stderr)
        base = url(with_password, "")
        with pytest.raises(ServiceError, match="api_key_missing"), Client(base, api_key="") as nobody:
            nobody.call("GET", "/v1/streams")
        with Client(base, api_key=key) as client:
            client.stream("numbers").register(STREAM)
        headers = {"authorization": f"Bearer {key}"}
        wrong = {"authorization": f"Bearer {key[:-1]}"}
        for method, path, given in (
            ("GET", "/v1/streams", wrong),
            ("GET", "/v1/streams", {"authorization": key}),
            ("GET", "/v1/api-keys", headers),
            ("POST", "/v1/queries", headers),
            ("GET", f"/v1/streams/{key}", headers | {"x-request-id": "r"}),
            ("GET", "/metrics", headers),
            ("GET", "/v1/version", headers),
        ):
            response = httpx.request(method, base + path, headers=given)
            body = response.text.replace(f"/v1/streams/{key}", "").replace(
                f"'{key}'", ""
            )  # what the client itself put into its path
            seen += [body, str(response.headers)]
        seen += debezium_answers(base, key)
        shown = run({**with_password, "SLACKWATER_API_KEY": key}, "config", "show")
        assert "SLACKWATER_API_KEY" in shown.stdout
        seen += [shown.stdout, shown.stderr]
    failed = run({**with_password, "SLACKWATER_DATABASE_URL": f"postgresql://u:{PASSWORD}@127.0.0.1:1/x"}, "keys", "list")
    assert failed.returncode == 1
    seen += [failed.stdout, failed.stderr]
    unreachable = Settings(database_url=SecretStr(f"postgresql://u:{PASSWORD}@127.0.0.1:1/x"))
    seen += [f"{finding.detail} {finding.remedy}" for finding in examine(unreachable)]
    for malformed in (f"postgresql://u:{PASSWORD}@[::1/x", f"host=h password={PASSWORD}", f"mysql://u:{PASSWORD}@h/x"):
        with pytest.raises(ValidationError, match="not a URL") as refused:
            Settings.model_validate({"database_url": malformed})
        seen.append(str(refused.value))
    secret = key.rsplit("_", 1)[1]
    logged = output.read_text()
    for text in (*seen, logged):
        assert PASSWORD not in text
        assert secret[:-1] not in text


def debezium_answers(base: str, key: str) -> list[str]:
    """Let Debezium's sink in, rightly and wrongly, and send changes; return what is answered but for the key that is given back."""
    table = {"columns": {"id": "bigint"}, "key": ["id"]}
    assert httpx.put(f"{base}/v1/tables/orders", json=table, headers={"authorization": f"Bearer {key}"}).status_code == 201
    admitted = httpx.post(f"{base}/v1/debezium/auth/authenticate", json={"username": "u", "password": key})
    assert admitted.json()["jwt"] == key
    seen = [str(admitted.headers)]
    wrong: list[Any] = [
        {"username": "u", "password": key[:-1]}, {"username": key, "password": "x"}, {"password": key},
        {"username": "u", "password": {"of": key}},
        {"username": "u", "password": key, "unknown": key}, [key], key,
    ]  # fmt: skip
    for path, body in [("authenticate", each) for each in wrong] + [
        ("refreshToken", {"jwt_refresh_token": key[:-1]}),
        ("refreshToken", [key]),
    ]:
        refused = httpx.post(f"{base}/v1/debezium/auth/{path}", json=body)
        assert refused.status_code in (400, 401, 422), refused.text
        seen.append(f"{refused.text} {refused.headers}")
    change = {"op": "c", "after": {"id": 1}, "source": {"connector": "postgresql", "lsn": 5}}
    for header, status in ((f"Bearer: {key}", 200), (f"Bearer: {key[:-1]}", 401), (f"Bearer:{key} {key}", 401)):
        answer = httpx.post(f"{base}/v1/tables/orders/records?format=debezium", json=change, headers={"authorization": header})
        assert answer.status_code == status, answer.text
        seen.append(f"{answer.text} {answer.headers}")
    return seen

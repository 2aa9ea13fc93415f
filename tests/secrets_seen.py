"""Whether secrets are seen anywhere: everything that a service shows and leaves behind, and the forms in which a secret may stand there."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import httpx
import psutil
import psycopg

from app.testing.machines.service import command_of

PATHS = (
    "/v1/connections", "/v1/streams", "/v1/tables", "/v1/queries", "/v1/audit?limit=1000", "/openapi.json", "/metrics", "/v1/errors",
    "/v1/version", "/healthz",
)  # fmt: skip
OF_QUERIES = ("", "/status", "/events", "/runs", "/explain?key=1&at=2023-11-14T22:13:20Z")
"""The last is refused of a result whose key is none of that kind: refusals are shown, too."""


def look(address: str, directory: Path, dsn: str) -> dict[str, str]:
    """Return everything that a running service shows and leaves behind, by where it was found.

    Args:
        address: of the service.
        directory: where it keeps its logs, and the embedded Postgres its own.
        dsn: of its database.
    """
    seen = dict[str, str]()
    with httpx.Client(base_url=address, timeout=60) as client:
        queries = [each["name"] for each in client.get("/v1/queries").json()["items"]]
        for path in (*PATHS, *(f"/v1/queries/{name}{part}" for name in queries for part in OF_QUERIES)):
            answer = client.get(path)
            assert answer.status_code < 500, f"{path}: {answer.text}"
            assert answer.status_code == 200 or "/explain" in path, f"{path}: {answer.text}"
            seen[path] = f"{answer.text} {answer.headers}"
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    seen["arguments"] = "\n".join(map(command_of, processes))
    assert " serve" in seen["arguments"], "the service is among them"
    seen |= left_behind(directory)
    seen["database"] = dumped(dsn)
    return seen


def left_behind(directory: Path) -> dict[str, str]:
    """Return the files below a service's directory, but for the embedded Postgres's own: of these its log."""
    found = dict[str, str]()
    for path in directory.rglob("*"):
        within = path.relative_to(directory)
        if path.is_file() and ("postgres" not in within.parts or within.parts[-2:] == ("postgres", "log")):
            found[f"file {within}"] = path.read_bytes().decode(errors="replace")
    assert any("service_started" in text for text in found.values()), "the service's log is among them"
    has_database = any(directory.rglob("postgres/PG_VERSION"))
    assert any(name.endswith("postgres/log") for name in found) == has_database, "so is the database's"
    return found


def dumped(dsn: str) -> str:
    """Return all text of all tables of ours."""
    with psycopg.connect(dsn) as connection:
        tables = connection.execute(
            "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND relnamespace IN ('slackwater'::regnamespace, 'log'::regnamespace)"
        ).fetchall()
        return "\n".join(
            str(row)
            for (table,) in tables
            for row in connection.execute(f"SELECT row_to_json(t)::text FROM {table} t").fetchall()
        )


def check_unseen(secrets: Iterable[str], seen: Mapping[str, str], users: Iterable[str] = ("u",)) -> None:
    """Fail where a secret stands in what was seen, in whatever form.

    Args:
        secrets: none of them empty.
        seen: where → text.
        users: who the secrets are sent with, as credentials of HTTP.
    """
    for secret in secrets:
        assert secret
        for form in _forms(secret, users):
            for where, text in seen.items():
                assert form not in text, f"{form[:8]}… is in {where}"


def _forms(secret: str, users: Iterable[str]) -> Iterator[str]:
    encoded = secret.encode()
    yield from {secret, quote(secret, safe=""), json.dumps(secret)[1:-1], encoded.hex(), b64encode(encoded).decode()}
    for user in users:
        yield b64encode(f"{user}:".encode() + encoded).decode()

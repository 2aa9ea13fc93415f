"""Statements name schemas so that a prefix reaches them, and connections are opened so that they translate."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.postgres.schemas import CHANNELS, SCHEMAS, Schemas

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path for folder in ("app", "engine", "migrations") for path in (ROOT / folder).rglob("*.py"))

OPENING = {
    "engine/postgres/links.py",  # the connections that translate; and a probe, which looks at no table
    "app/db/database.py",
    "engine/connections/attempts.py",  # databases of users
    "app/db/embedded_postgres.py",  # sets the server up, before there is anything of ours
    "migrations/env.py",
}
ONLY_WITHOUT_PREFIX = {"migrations/env.py"}
"""Moves the table of revisions of installations that are older than prefixes."""

_STATEMENT = re.compile(
    r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM|CREATE|ALTER|DROP|COPY|LISTEN|NOTIFY|FROM|JOIN|EXECUTE|WHERE)\b"
)
_FIELD = re.compile(r"\{\w*\}")
_NAME = re.compile(rf"(?<![\w$-])(?:{'|'.join((*SCHEMAS, *CHANNELS))})(?![\w:-])")
_CATALOG = re.compile(r"nspname|schemaname|table_schema|::regnamespace")
_PARAMETER = re.compile(r"(?:to_regclass|regnamespace|pg_notify|set_config|pg_get_serial_sequence)\(\s*%")
_OPENS = re.compile(
    r"\bpsycopg\.(?:Async)?(?:Connection\.)?connect\(|\bcreate_(?:async_)?engine\(|psycopg_pool\.\w*ConnectionPool\(|engine_from_config"
)
_ALLOWED_PARAMETER = {"engine/commit/views.py"}  # the parameter is translated


def names_left(statement: str) -> list[str]:
    """Return what names a schema or a channel in a way that is not translated."""
    text = _FIELD.sub("", Schemas("zz_").text(statement))
    found = []
    for name in _NAME.finditer(text):
        is_value = text[name.start() - 1 : name.start()] == "'" == text[name.end() : name.end() + 1]
        if not is_value or _CATALOG.search(text):
            found.append(text[max(0, name.start() - 30) : name.end() + 20])
    return found


def statements(path: Path) -> Iterator[tuple[int, str]]:
    tree = ast.parse(path.read_text())
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    pieces = {id(piece) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for piece in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [piece.value if isinstance(piece, ast.Constant) else "{}" for piece in node.values]
            text = "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts | pieces:
            text = node.value
        else:
            continue
        if _STATEMENT.search(text):
            yield node.lineno, text


def test_every_statement_names_schemas_in_a_way_that_is_translated() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {left}"
        for path in SOURCES
        if str(path.relative_to(ROOT)) not in ONLY_WITHOUT_PREFIX
        for line, statement in statements(path)
        for left in names_left(statement)
    ]
    assert found == []


def test_no_parameter_names_a_schema_or_a_channel_and_locks_are_of_the_installation() -> None:
    found = []
    for path in SOURCES:
        name = str(path.relative_to(ROOT))
        for number, line in enumerate(path.read_text().splitlines(), 1):
            is_shared_lock = re.search(r"pg_(?:try_)?advisory_\w*lock", line) and ".lock(" not in line
            if is_shared_lock or (_PARAMETER.search(line) and name not in _ALLOWED_PARAMETER):
                found.append(f"{name}:{number}: {line.strip()}")
    assert found == []


def test_connections_are_opened_where_they_learn_their_schemas() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in SOURCES
        if str(path.relative_to(ROOT)) not in OPENING
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if _OPENS.search(line)
    ]
    assert found == [], "open it with engine.postgres.links or app.db.database"


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM pg_tables WHERE schemaname IN ('views', 'history')",
        "SELECT oid FROM pg_namespace WHERE nspname = 'log'",
        'SELECT * FROM "log"."batch"',
        "EXECUTE format('DELETE FROM log.batch')",
        "SET search_path = log, public WHERE",
        "GRANT USAGE ON ALL TABLES IN SCHEMA  log WHERE",
        "SELECT h.x FROM t AS history",
        "DELETE FROM LOG.batch, log .batch",
    ],
)
def test_a_statement_that_names_a_schema_otherwise_is_found(statement: str) -> None:
    assert names_left(statement)


@pytest.mark.parametrize(
    "statement", ["SELECT 'open' AS state FROM log.batch", "SELECT 'log:' || name FROM {history} WHERE a = 'slackwater-sink'"]
)
def test_a_statement_that_is_translated_or_says_such_a_word_as_a_value_passes(statement: str) -> None:
    assert not names_left(statement)

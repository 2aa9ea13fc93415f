"""What lists of relations ask of the database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from app.catalog.relations.edits import put_source
from app.catalog.relations.routes import listed
from app.db.database import engine_for, raw
from app.db.page_bounds import Most
from app.http.requests.conditions import Preconditions
from engine.definition.relations import StreamDefinition


@pytest.fixture
def connection(dsn: str) -> Iterator[sa.Connection]:
    engine = engine_for(dsn, poolclass=sa.NullPool)
    with engine.connect() as opened:
        yield opened
    engine.dispose()


def executions(connection: sa.Connection, trace: Path) -> int:
    """List the streams and count what was executed, as libpq saw it."""
    driver: psycopg.Connection[object] = raw(connection)
    with trace.open("w") as file:
        driver.pgconn.trace(file.fileno())
        listed(connection, "stream", Most(100, 1 << 24), None)
        driver.pgconn.untrace()
    return sum("\tExecute\t" in line or "\tQuery\t" in line for line in trace.read_text().splitlines())


def test_a_list_of_many_takes_as_many_statements_as_a_list_of_one(connection: sa.Connection, tmp_path: Path) -> None:
    def put(number: int) -> None:
        definition = StreamDefinition.model_validate({"columns": {"a": "string"}, "connector": {"type": "log", "partitions": 2}})
        put_source(connection, "stream", f"s{number}", definition, Preconditions(), 2)

    put(0)
    one = executions(connection, tmp_path / "one")
    assert one > 0
    for number in range(1, 6):
        put(number)
    assert executions(connection, tmp_path / "many") == one
    assert [len(item.partitions or ()) for item in listed(connection, "stream", Most(100, 1 << 24), None).items] == [2] * 6
    connection.rollback()

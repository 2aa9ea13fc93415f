"""Which version the database's schema has, and which one this version of the service needs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa
from alembic.script import ScriptDirectory
from sqlalchemy.ext.asyncio import AsyncConnection

import app


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """A database's schema.

    Attributes:
        is_behind: migrations of this version are missing. A schema ahead of it is one that a newer version works on beside it.
    """

    found: str
    needed: str
    is_behind: bool


class SchemaTooNew(Exception):
    """A newer version has upgraded the database: what it has stored may mean what this one does not know."""

    def __init__(self, found: str, known: str) -> None:
        super().__init__(
            f"the database's schema is at {found}, and this version of Slackwater knows them up to {known}: a newer version has upgraded it. "
            "Run that version, or bring back a copy of the database and of the data directory from before"
        )


def refuse_newer(connection: psycopg.Connection[Any]) -> None:
    """Look at a database before it is used; an empty one passes.

    Raises:
        SchemaTooNew: see there.
    """
    if connection.execute("SELECT to_regclass('alembic_version')").fetchone() == (None,):
        return
    needed, known = _migrations()
    for (found,) in connection.execute("SELECT version_num FROM alembic_version"):
        if found not in known:
            raise SchemaTooNew(found, needed)


async def find_schema(connection: AsyncConnection) -> SchemaVersion:
    """Return the version of a database's schema. An empty database has no table to tell it: ``ProgrammingError``."""
    found = str((await connection.execute(sa.text("SELECT version_num FROM alembic_version"))).scalar_one())
    needed, known = _migrations()
    return SchemaVersion(found, needed, is_behind=found != needed and found in known)


@cache
def _migrations() -> tuple[str, frozenset[str]]:
    """Return the newest revision of this version, and all of them."""
    scripts = ScriptDirectory(str(Path(app.__file__).resolve().parent.parent / "migrations"))
    return str(scripts.get_current_head()), frozenset(script.revision for script in scripts.walk_revisions())

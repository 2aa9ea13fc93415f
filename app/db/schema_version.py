"""Which version the database's schema has, and whether the code of this version may work on it.

Each migration says in ``oldest_code`` which revision the oldest code has that goes on working after it; ``migrations/env.py`` writes that into
the database. So this version also works on the schema of a newer one that has only added things, and two versions can run side by side
while a service is upgraded.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import psycopg
import sqlalchemy as sa
from alembic.script import ScriptDirectory
from sqlalchemy.ext.asyncio import AsyncConnection

import app

_VERSION_TABLE: Final = """
SELECT CASE
    WHEN to_regclass('slackwater.alembic_version') IS NOT NULL THEN 'slackwater.alembic_version'
    WHEN to_regclass('slackwater.relation') IS NOT NULL AND to_regclass('alembic_version') IS NOT NULL THEN 'alembic_version'
END
"""
"""Before 0016 it was in the first schema of the search path. Where nothing of ours is, one there is another program's."""
_VERSION: Final = "SELECT version_num FROM {}"
_HAS_SUPPORT: Final = "SELECT to_regclass('slackwater.schema_support') IS NOT NULL"
_SUPPORT: Final = "SELECT oldest_code FROM slackwater.schema_support"


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """A database's schema.

    Attributes:
        found: its revision; None in an empty database.
        needed: the newest revision that this version knows.
        is_behind: migrations of this version are missing.
        is_too_new: a newer version has changed it in a way that this one does not know.
    """

    found: str | None
    needed: str
    is_behind: bool
    is_too_new: bool

    @property
    def problem(self) -> str | None:
        """Say why this version cannot work on it and what to do; None where it can."""
        if self.is_too_new:
            return (
                f"the database's schema is at {self.found}, and this version of Slackwater works on schemas up to {self.needed} and on newer "
                f"ones that only add to it: a newer version has upgraded it. Run that version, or bring back a copy of the database and of the "
                "data directory from before"
            )
        if self.is_behind:
            found = "empty" if self.found is None else f"at {self.found}"
            return f"the database's schema is {found}, this version needs {self.needed}: run `slackwater migrate`"
        return None


class SchemaTooNew(Exception):
    """A newer version has upgraded the database: what it has stored may mean what this one does not know."""

    def __init__(self, schema: SchemaVersion) -> None:
        super().__init__(schema.problem)


def look_at_schema(connection: psycopg.Connection[Any]) -> SchemaVersion:
    """Return the version of a database's schema; on a connection with autocommit or in a transaction."""
    table = _only(connection.execute(_VERSION_TABLE))
    if table is None:
        return _judged(None, None)
    found = _only(connection.execute(_VERSION.format(table)))
    if found in _migrations()[1] or not _only(connection.execute(_HAS_SUPPORT)):
        return _judged(found, None)
    return _judged(found, _only(connection.execute(_SUPPORT)))


def refuse_newer(connection: psycopg.Connection[Any]) -> SchemaVersion:
    """Look at a database before it is used or migrated; an empty one passes.

    Raises:
        SchemaTooNew: see there.
    """
    schema = look_at_schema(connection)
    if schema.is_too_new:
        raise SchemaTooNew(schema)
    return schema


async def find_schema(connection: AsyncConnection) -> SchemaVersion:
    """Do as ``look_at_schema`` does."""

    async def only(statement: str) -> Any:
        return (await connection.execute(sa.text(statement))).scalar()

    table = await only(_VERSION_TABLE)
    if table is None:
        return _judged(None, None)
    found = await only(_VERSION.format(table))
    if found in _migrations()[1] or not await only(_HAS_SUPPORT):
        return _judged(found, None)
    return _judged(found, await only(_SUPPORT))


def _only(cursor: psycopg.Cursor[Any]) -> Any:
    row = cursor.fetchone()
    return None if row is None else row[0]


def _judged(found: str | None, oldest_code: str | None) -> SchemaVersion:
    """Judge a revision. ``oldest_code`` counts for unknown ones: code that knows it, or is newer, may work on the schema."""
    needed, known = _migrations()
    is_newer = found is not None and found not in known
    return SchemaVersion(
        found, needed, is_behind=not is_newer and found != needed, is_too_new=is_newer and oldest_code not in known
    )


@cache
def _migrations() -> tuple[str, frozenset[str]]:
    """Return the newest revision of this version, and all of them."""
    scripts = ScriptDirectory(str(Path(app.__file__).resolve().parent.parent / "migrations"))
    return str(scripts.get_current_head()), frozenset(script.revision for script in scripts.walk_revisions())

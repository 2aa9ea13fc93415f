"""Which version the database's schema has, and whether the code of this version may work on it: it does not work on what it does not know."""

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

_IS_THERE: Final = "SELECT to_regclass('slackwater.alembic_version') IS NOT NULL"
_VERSION: Final = "SELECT version_num FROM slackwater.alembic_version"


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """A database's schema.

    Attributes:
        found: its revision; None in an empty database.
        needed: the newest revision that this version knows.
        is_behind: migrations of this version are missing.
        is_unknown: another version made it, and this one does not know it.
    """

    found: str | None
    needed: str
    is_behind: bool
    is_unknown: bool

    @property
    def problem(self) -> str | None:
        """Say why this version cannot work on it and what to do; None where it can."""
        if self.found is not None and self.is_unknown:
            return (
                f"the database's schema is at {self.found}, and this version of Slackwater works on schemas up to {self.needed}: another "
                "version has made it. Run that version, or bring back a copy of the database and of the data directory from before"
            )
        if self.is_behind:
            found = "empty" if self.found is None else f"at {self.found}"
            return f"the database's schema is {found}, this version needs {self.needed}: run `slackwater migrate`"
        return None


class SchemaVersionUnknown(Exception):
    """Another version made the database's schema: what is stored may mean what this version does not know."""

    def __init__(self, schema: SchemaVersion) -> None:
        super().__init__(schema.problem)


def look_at_schema(connection: psycopg.Connection[Any]) -> SchemaVersion:
    """Return the version of a database's schema; on a connection with autocommit or in a transaction."""
    return _version_of(_only(connection.execute(_VERSION)) if _only(connection.execute(_IS_THERE)) else None)


def refuse_unknown(connection: psycopg.Connection[Any]) -> SchemaVersion:
    """Look at a database before it is used or migrated; an empty one passes.

    Raises:
        SchemaVersionUnknown: see there.
    """
    schema = look_at_schema(connection)
    if schema.is_unknown:
        raise SchemaVersionUnknown(schema)
    return schema


async def find_schema(connection: AsyncConnection) -> SchemaVersion:
    """Do as ``look_at_schema`` does."""
    is_there = (await connection.execute(sa.text(_IS_THERE))).scalar()
    return _version_of((await connection.execute(sa.text(_VERSION))).scalar() if is_there else None)


def _only(cursor: psycopg.Cursor[Any]) -> Any:
    row = cursor.fetchone()
    return None if row is None else row[0]


def _version_of(found: str | None) -> SchemaVersion:
    needed, known = _migrations()
    is_unknown = found is not None and found not in known
    return SchemaVersion(found, needed, is_behind=not is_unknown and found != needed, is_unknown=is_unknown)


@cache
def _migrations() -> tuple[str, frozenset[str]]:
    """Return the newest revision of this version, and all of them."""
    scripts = ScriptDirectory(str(Path(app.__file__).resolve().parent.parent / "migrations"))
    return str(scripts.get_current_head()), frozenset(script.revision for script in scripts.walk_revisions())

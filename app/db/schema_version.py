"""The version of the database's schema, and whether this version of the code may use it. It refuses unknown schemas."""

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
        found: its revision; None for an empty database.
        needed: the newest revision that this version knows.
        is_behind: migrations of this version are missing.
        is_unknown: another version made the schema, and this version does not know it.
    """

    found: str | None
    needed: str
    is_behind: bool
    is_unknown: bool

    @property
    def problem(self) -> str | None:
        """Return why this version cannot use the schema, and the cure; None if it can."""
        if self.found is not None and self.is_unknown:
            return (
                f"the database's schema is at {self.found}, and this version of Slackwater knows schemas up to {self.needed}: another "
                "version has made it. Run that version; to go on with this one, run `slackwater export` there and start this one on an empty "
                "database and data directory, or on a copy of both from before"
            )
        if self.is_behind:
            state = "empty" if self.found is None else f"at {self.found}"
            return f"the database's schema is {state}, this version needs {self.needed}: run `slackwater migrate`"
        return None


class SchemaVersionUnknown(Exception):
    """Another version made the database's schema: stored data may have a meaning that this version does not know."""

    def __init__(self, schema: SchemaVersion) -> None:
        super().__init__(schema.problem)


def look_at_schema(connection: psycopg.Connection[Any]) -> SchemaVersion:
    """Return the version of a database's schema; the connection has autocommit or is in a transaction."""
    return _version_of(_only(connection.execute(_VERSION)) if _only(connection.execute(_IS_THERE)) else None)


def refuse_unknown(connection: psycopg.Connection[Any]) -> SchemaVersion:
    """Check the schema before the database is used or migrated; an empty one is accepted.

    Raises:
        SchemaVersionUnknown: another version made the schema.
    """
    schema = look_at_schema(connection)
    if schema.is_unknown:
        raise SchemaVersionUnknown(schema)
    return schema


async def find_schema(connection: AsyncConnection) -> SchemaVersion:
    is_there = (await connection.execute(sa.text(_IS_THERE))).scalar()
    return _version_of((await connection.execute(sa.text(_VERSION))).scalar() if is_there else None)


def _only(cursor: psycopg.Cursor[Any]) -> Any:
    row = cursor.fetchone()
    return None if row is None else row[0]


def _version_of(revision: str | None) -> SchemaVersion:
    needed, known = _migrations()
    is_unknown = revision is not None and revision not in known
    return SchemaVersion(revision, needed, is_behind=not is_unknown and revision != needed, is_unknown=is_unknown)


@cache
def _migrations() -> tuple[str, frozenset[str]]:
    """Return the newest revision of this version, and all of them."""
    scripts = ScriptDirectory(str(Path(app.__file__).resolve().parent.parent / "migrations"))
    return str(scripts.get_current_head()), frozenset(script.revision for script in scripts.walk_revisions())

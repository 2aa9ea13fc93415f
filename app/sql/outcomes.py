"""The outcome of each statement of a script."""

from __future__ import annotations

from dataclasses import dataclass

from app.appends.append_transaction import Appended
from app.sql.catalog.carrying_out import Done
from app.sql.catalog.looking import Listing
from app.sql.reads.rows import ResultRows
from engine.sql.scripts import Parsed
from engine.statements.context.session import SqlRelation


@dataclass(frozen=True, slots=True)
class Defined:
    """A definition was registered, created, changed or removed."""

    parsed: Parsed
    done: Done


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of existing things."""

    parsed: Parsed
    listing: Listing


@dataclass(frozen=True, slots=True)
class Selected:
    """Rows of a pull query."""

    parsed: Parsed
    rows: ResultRows


@dataclass(frozen=True, slots=True)
class Inserted:
    """Records were appended."""

    parsed: Parsed
    relation: SqlRelation
    appended: Appended


Outcome = Defined | Listed | Selected | Inserted

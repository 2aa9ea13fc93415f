"""Rows of connections: put, find, list, delete. Values of secrets arrive in a definition and are encrypted before they are stored.

``slackwater doctor`` checks whether the configured key decrypts them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg
import sqlalchemy as sa

from app.access.audit.sql import Action, Change, note
from app.access.rules import visible
from app.access.scopes_sql import name_is_visible
from app.db.database import lock_edits
from app.db.page_bounds import Most, bounded
from app.db.tables import connection as table
from app.db.tables import query, relation
from app.errors.app_errors import Conflict, NotFound
from app.http.requests.conditions import Preconditions
from engine.connections.checking import Outcome
from engine.connections.keys import SecretKeyMissing, SecretKeys, SecretUnreadable
from engine.connections.kinds import AnyConnection
from engine.connections.stored import Stored, sealed
from engine.definition.connections.secret import taken_out
from engine.errors import DefinitionInvalid, Problem

_USED: Final = "$.connector.**.connection ? (@ == $name)"
_USED_BY_OUTPUT: Final = "$.into.connector.**.connection ? (@ == $name)"
"""The places where a definition names a connection: its connector, or a format inside of it."""


@dataclass(frozen=True, slots=True)
class ConnectionRow:
    """A stored connection.

    Attributes:
        definition: with every default; ``{"set": true}`` replaces each secret value.
        secrets: pointer → encrypted value.
    """

    name: str
    type: str
    definition: dict[str, Any]
    secrets: dict[str, str]
    version: int
    created_at: datetime
    updated_at: datetime

    @property
    def body(self) -> dict[str, Any]:
        """The connection, as the audit log shows it: without secrets, so only the version shows that a secret was changed."""
        return {"definition": self.definition, "version": self.version}

    @property
    def stored(self) -> Stored:
        return Stored(self.name, self.type, self.definition, self.secrets)


@dataclass(frozen=True, slots=True)
class PutConnection:
    """Result of a PUT."""

    row: ConnectionRow
    is_created: bool


_ROWS: Final = sa.select(*(table.c[name] for name in ConnectionRow.__dataclass_fields__))


def put_connection(
    transaction: sa.Connection, name: str, definition: AnyConnection, keys: SecretKeys | None, conditions: Preconditions
) -> PutConnection:
    """Create a connection, or replace the existing one. An equal definition, secrets included, changes nothing.

    Raises:
        DefinitionInvalid: ``secret_key_missing``.
        PreconditionFailed: ``version_mismatch``.
    """
    try:
        sealed_connection = sealed(name, definition, keys)
    except SecretKeyMissing as error:
        detail = (
            "a value is stored only encrypted, and this service has no SLACKWATER_SECRET_KEY (`openssl rand -hex 32`); set it, or use "
            "env:NAME or file:PATH"
        )
        raise DefinitionInvalid([Problem(pointer, "secret_key_missing", detail) for pointer in error.pointers]) from None
    lock_edits(transaction)
    before = _find(transaction, name)
    conditions.check(f"connection '{name}'", None if before is None else before.version)
    if before is not None and _is_equal(before.stored, definition, keys):
        return PutConnection(before, is_created=False)
    values = {"type": sealed_connection.type, "definition": sealed_connection.definition, "secrets": sealed_connection.secrets}
    if before is None:
        transaction.execute(sa.insert(table).values(name=name, **values))
    else:
        changed = sa.update(table).where(table.c.name == name)
        transaction.execute(changed.values(**values, version=table.c.version + 1, updated_at=sa.func.now()))
    row = get_connection(transaction, name)
    action = Action.CREATE if before is None else Action.REPLACE
    note(transaction, Change(action, "connection", name, None if before is None else before.body, row.body))
    return PutConnection(row, is_created=before is None)


def get_connection(transaction: sa.Connection, name: str) -> ConnectionRow:
    """Return a connection.

    Raises:
        NotFound: ``connection_not_found``.
    """
    row = _find(transaction, name)
    if row is None:
        raise NotFound("connection_not_found", f"there is no connection '{name[:80]}'; GET /v1/connections lists all")
    return row


def list_connections(transaction: sa.Connection, most: Most, after: str | None) -> tuple[list[ConnectionRow], bool]:
    """Return connections by name, after ``after``, and whether the last one is beyond the page; only those in the caller's scope."""
    statement = _ROWS.where(name_is_visible(table.c.name)).order_by(table.c.name).limit(most.items)
    if after is not None:
        statement = statement.where(table.c.name > after)
    rows = transaction.execute(bounded(statement, ("definition",), most.bytes)).all()
    return [ConnectionRow(*row[:-1]) for row in rows], bool(rows) and rows[-1][-1]


def delete_connection(transaction: sa.Connection, name: str, conditions: Preconditions) -> None:
    """Delete a connection with its secrets.

    Raises:
        NotFound: ``connection_not_found``.
        Conflict: ``connection_in_use``.
        PreconditionFailed: ``version_mismatch``.
    """
    lock_edits(transaction)
    row = get_connection(transaction, name)
    conditions.check(f"connection '{name}'", row.version)
    users = users_of(transaction, name)
    if users:
        raise Conflict(
            "connection_in_use", f"the connection '{name}' is used by {', '.join(map(visible, users))}; delete those first"
        )
    transaction.execute(sa.delete(table).where(table.c.name == name))
    note(transaction, Change(Action.DELETE, "connection", name, row.body, None))


def note_check(transaction: sa.Connection, name: str, outcome: Outcome) -> None:
    after = {"outcome": outcome.outcome, "reason": outcome.reason}
    note(transaction, Change(Action.CHECK, "connection", name, None, after))


def users_of(transaction: sa.Connection, name: str) -> list[str]:
    """Return the names of relations and queries whose definitions name a connection. Any edit of these also holds the edit lock."""
    parameters = sa.func.jsonb_build_object("name", name)

    def where(definition: sa.Column[Any], path: str) -> sa.ColumnElement[bool]:
        return sa.func.jsonb_path_exists(
            sa.cast(definition, sa.dialects.postgresql.JSONB), sa.cast(path, sa.dialects.postgresql.JSONPATH), parameters
        )

    relations = sa.select(relation.c.name).where(relation.c.origin == "source", where(relation.c.definition, _USED))
    queries = sa.select(query.c.name).where(query.c.deleted_at.is_(None), where(query.c.definition, _USED_BY_OUTPUT))
    return sorted(transaction.execute(sa.union(relations, queries)).scalars())


def _find(transaction: sa.Connection, name: str) -> ConnectionRow | None:
    row = transaction.execute(_ROWS.where(table.c.name == name)).one_or_none()
    return None if row is None else ConnectionRow(*row)


def _is_equal(stored: Stored, definition: AnyConnection, keys: SecretKeys | None) -> bool:
    """Whether nothing would change, the key included: after a change of the key, a PUT of an equal connection encrypts it again."""
    shown, values = taken_out(definition)
    if stored.definition != shown or stored.secrets.keys() != values.keys():
        return False
    if keys is None:
        return True  # there are no secrets, or `sealed` would have raised
    try:
        return all(
            keys.is_first(text) and keys.decrypt(text, stored.place(pointer)) == values[pointer]
            for pointer, text in stored.secrets.items()
        )
    except SecretUnreadable:
        return False


_EXISTS = "SELECT to_regclass('slackwater.connection') IS NOT NULL"
_ALL = "SELECT name, type, definition, secrets FROM slackwater.connection WHERE secrets <> '{}' ORDER BY name"


@dataclass(frozen=True, slots=True)
class SecretsCheck:
    """Result of the check.

    Attributes:
        connections: number of connections with stored secrets.
        unreadable: name and reason of each connection that cannot be decrypted.
        of_former_keys: names of connections that are encrypted with another key than the first.
    """

    connections: int
    unreadable: tuple[str, ...]
    of_former_keys: tuple[str, ...]


def look_at_secrets(connection: psycopg.Connection[Any], keys: SecretKeys | None) -> SecretsCheck:
    """Decrypt every secret and discard it."""
    exists = connection.execute(_EXISTS).fetchone()
    rows = connection.execute(_ALL).fetchall() if exists is not None and exists[0] else []
    unreadable, former = [], []
    for row in rows:
        stored = Stored(*row)
        try:
            for pointer, text in stored.secrets.items():
                _decrypt(stored, pointer, keys)
                if keys is not None and not keys.is_first(text) and stored.name not in former:
                    former.append(stored.name)
        except SecretUnreadable as error:
            unreadable.append(f"{stored.name}: {error}")
    return SecretsCheck(len(rows), tuple(unreadable), tuple(former))


def _decrypt(stored: Stored, pointer: str, keys: SecretKeys | None) -> None:
    if keys is None:
        raise SecretUnreadable(f"{pointer} is encrypted, and SLACKWATER_SECRET_KEY is not set")
    keys.decrypt(stored.secrets[pointer], stored.place(pointer))

"""API keys: create, list, revoke and authenticate. The database has only their digests."""

from __future__ import annotations

import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from app.access.audit.sql import Action, Change, note
from app.access.rules import NewKey, Principal, Role, digest_of_key, is_key, make_key
from app.access.scopes import Scope, scope_of
from app.db.shared_reads import SharedReads
from app.db.tables import api_key
from app.errors.app_errors import Conflict, NotFound, Unauthorized, Unprocessable

CACHE_SECONDS = 5.0
"""How long a valid key is cached: a revocation counts after this time at the latest."""

UNKNOWN_SECONDS = 2.0
"""How long an unknown key is cached. Keys are drawn at random here, so a key that somebody made up does not become valid meanwhile."""

CACHE_KEYS = 1_024
_USE_NOTED_EVERY = sa.text("interval '1 minute'")


@dataclass(frozen=True, slots=True)
class ApiKeyRow:
    """A stored key, without its secret part."""

    id: UUID
    name: str
    prefix: str
    role: str
    scope: list[str] | None
    created_at: datetime
    last_used_at: datetime | None
    expires_at: datetime | None
    revoked_at: datetime | None

    @property
    def body(self) -> dict[str, Any]:
        """The key, as the audit log shows it."""
        expires_at = None if self.expires_at is None else self.expires_at.isoformat()
        return {"prefix": self.prefix, "role": self.role, "scope": self.scope, "expires_at": expires_at}


_ROWS = sa.select(*(api_key.c[name] for name in ApiKeyRow.__dataclass_fields__))


def create_key(
    connection: sa.Connection, name: str, role: Role, valid_ms: int | None, scope: Scope | None = None
) -> tuple[ApiKeyRow, NewKey]:
    """Make a key.

    Args:
        connection: in a transaction.
        name: free among the keys that are not revoked.
        role: what it may do.
        valid_ms: from now until it expires; None: never.
        scope: the names that it may see; None: all.

    Raises:
        Conflict: ``name_taken``.
        Unprocessable: ``bad_scope``: an administrator's key could make one without a scope.
    """
    if scope is not None and role >= Role.ADMIN:
        raise Unprocessable(
            "bad_scope", "a key of the role admin has no scope, because it can create other keys; use the role write"
        )
    new_key = make_key()
    expires_at = None if valid_ms is None else sa.func.now() + sa.func.make_interval(0, 0, 0, 0, 0, 0, valid_ms / 1000)
    inserted = connection.execute(
        sa.dialects.postgresql.insert(api_key)
        .values(
            id=uuid.uuid4(),
            name=name,
            prefix=new_key.prefix,
            digest=new_key.digest,
            role=role.text,
            scope=None if scope is None else list(scope.patterns),
            expires_at=expires_at,
        )
        .on_conflict_do_nothing(index_elements=[api_key.c.name], index_where=api_key.c.revoked_at.is_(None))
        .returning(api_key.c.id)
    ).scalar_one_or_none()
    if inserted is None:
        raise Conflict("name_taken", f"there is already a key named '{name}'; revoke it first, or use another name")
    row = ApiKeyRow(*connection.execute(_ROWS.where(api_key.c.id == inserted)).one())
    note(connection, Change(Action.CREATE, "api_key", name, None, row.body))
    return row, new_key


def list_keys(connection: sa.Connection, limit: int, after: UUID | None = None) -> list[ApiKeyRow]:
    """Return up to ``limit`` keys by id, after ``after``, with revoked ones."""
    statement = _ROWS.order_by(api_key.c.id).limit(limit)
    if after is not None:
        statement = statement.where(api_key.c.id > after)
    return [ApiKeyRow(*row) for row in connection.execute(statement)]


def has_keys(connection: sa.Connection) -> bool:
    """Whether any key is valid now."""
    usable = sa.and_(api_key.c.revoked_at.is_(None), sa.func.coalesce(api_key.c.expires_at > sa.func.now(), sa.true()))
    return bool(connection.execute(sa.select(sa.exists().where(usable))).scalar_one())


def revoke_key(connection: sa.Connection, name: str) -> None:
    """Revoke the key of that name.

    Raises:
        NotFound: ``api_key_not_found``.
    """
    live = sa.and_(api_key.c.name == name, api_key.c.revoked_at.is_(None))
    revoked = sa.update(api_key).where(live).values(revoked_at=sa.func.now()).returning(*_ROWS.selected_columns)
    row = connection.execute(revoked).one_or_none()
    if row is None:
        raise NotFound("api_key_not_found", f"there is no key named '{name}' to revoke; GET /v1/api-keys lists them")
    note(connection, Change(Action.REVOKE, "api_key", name, ApiKeyRow(*row).body, None))


class KeyCache:
    """Authenticates keys. It caches results for ``CACHE_SECONDS``, so that a read needs no look-up of its key.

    Look-ups at the same moment share one statement, and at most two statements run at once. Clients with wrong or lost keys use no more of
    the database than that.
    """

    def __init__(self, engine: AsyncEngine, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._clock = clock
        self._known: OrderedDict[bytes, tuple[Principal, float]] = OrderedDict()
        self._unknown: OrderedDict[bytes, float] = OrderedDict()
        self._rows = SharedReads(self._fetch)

    def __len__(self) -> int:
        """How many keys are cached."""
        return len(self._known)

    async def recognise(self, text: str) -> Principal:
        """Return the owner of this key.

        Raises:
            Unauthorized: ``api_key_invalid`` (unknown or revoked), ``api_key_expired``.
        """
        if not is_key(text):
            raise _invalid()
        digest = digest_of_key(text)
        known = self._known.get(digest)
        if known is not None and self._clock() < known[1]:
            return known[0]
        if self._clock() < self._unknown.get(digest, 0.0):
            raise _invalid()
        self._known.pop(digest, None)
        principal, valid_s = await self._look_up(digest)
        # Unknown keys are cached separately, or they could push out the valid ones.
        self._known[digest] = principal, self._clock() + min(CACHE_SECONDS, valid_s)
        if len(self._known) > CACHE_KEYS:
            self._known.popitem(last=False)
        return principal

    async def _look_up(self, digest: bytes) -> tuple[Principal, float]:
        """Return the owner of the key with this digest, and for how many seconds it is valid; record its use, once a minute at most."""
        row = await self._rows.read(digest)
        if row is None:
            self._unknown[digest] = self._clock() + UNKNOWN_SECONDS
            if len(self._unknown) > CACHE_KEYS:
                self._unknown.popitem(last=False)
            raise _invalid()
        key_id, name, role, scope, left = row
        valid_s = float("inf") if left is None else float(left)
        if valid_s <= 0:
            raise Unauthorized("api_key_expired", f"the key '{name}' has expired; ask an administrator for a new one")
        return Principal("api_key", str(key_id), name, Role.of(role), scope_of(scope)), valid_s

    async def _fetch(self, digests: list[bytes]) -> tuple[tuple[Any, ...] | None, ...]:
        """Return the row of each key, or None; record that each was used."""
        left = sa.func.extract("epoch", api_key.c.expires_at - sa.func.now())
        is_stale = sa.func.coalesce(api_key.c.last_used_at < sa.func.now() - _USE_NOTED_EVERY, sa.true())
        is_requested = sa.and_(api_key.c.digest.in_(digests), api_key.c.revoked_at.is_(None))
        recorded_use = (
            sa.update(api_key)
            .where(is_requested, is_stale)
            .values(last_used_at=sa.func.now())
            .returning(api_key.c.id)
            .cte("noted")
        )
        columns = (api_key.c.digest, api_key.c.id, api_key.c.name, api_key.c.role, api_key.c.scope, left)
        async with self._engine.begin() as connection:
            rows = {
                bytes(row[0]): tuple(row[1:])
                for row in await connection.execute(sa.select(*columns).where(is_requested).add_cte(recorded_use))
            }
        return tuple(rows.get(digest) for digest in digests)


def _invalid() -> Unauthorized:
    return Unauthorized(
        "api_key_invalid", "this is not a key of this service, or it was revoked; `slackwater keys list` shows the valid ones"
    )

"""Answers by idempotency key. A claim is part of the transaction that it guards: what fails leaves no key behind.

Appends keep theirs in the log's schema, in the appender's own transaction; the rules are the same (``app.access.idempotency.rules``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg
import sqlalchemy as sa

from app.access.idempotency.rules import TTL_MS, in_progress, key_reused
from app.db.tables import idempotency

# A twin waits as long as a slow first request takes on a busy machine; then the client is better off asking again.
WAIT_MS = 2_000


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """The first answer."""

    status: int
    body: Any
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Claim:
    """Whose key it is, and for which request.

    Attributes:
        principal: who sent it (``app.access.rules.actor``); two principals' keys are apart.
    """

    principal: str
    key: str
    digest: bytes


def claim(connection: sa.Connection, wanted: Claim) -> StoredAnswer | None:
    """Claim a key for this transaction, after waiting for one that has it; an expired one is free.

    Returns:
        The answer to give, or None: the request is the first one; ``keep`` its answer before the transaction ends.

    Raises:
        Unprocessable: ``idempotency_key_reused``.
        InProgress: ``idempotency_in_progress``.
    """
    kept, new = idempotency.c, sa.dialects.postgresql.insert(idempotency)
    expires_at = sa.func.now() + sa.text(f"interval '{TTL_MS} milliseconds'")
    statement = new.values(
        principal=wanted.principal, key=wanted.key, request_digest=wanted.digest, expires_at=expires_at
    ).on_conflict_do_update(
        index_elements=[kept.principal, kept.key],
        set_={
            name: sa.case((kept.expires_at < sa.func.now(), new.excluded[name]), else_=kept[name])
            for name in ("request_digest", "status", "body", "headers", "expires_at")
        },
    )
    connection.execute(sa.text(f"SET LOCAL lock_timeout = {WAIT_MS}"))
    try:
        found = connection.execute(statement.returning(kept.request_digest, kept.status, kept.body, kept.headers)).one()
    except sa.exc.OperationalError as error:
        if isinstance(error.orig, psycopg.errors.LockNotAvailable):
            raise in_progress(wanted.key) from error
        raise
    connection.execute(sa.text("SET LOCAL lock_timeout = DEFAULT"))
    if bytes(found.request_digest) != wanted.digest:
        raise key_reused(wanted.key)
    return None if found.status is None else StoredAnswer(found.status, found.body, found.headers)


def keep(connection: sa.Connection, claimed: Claim, answer: StoredAnswer) -> None:
    """Keep the answer to the request whose key this transaction has claimed."""
    connection.execute(
        sa.update(idempotency)
        .where(idempotency.c.principal == claimed.principal, idempotency.c.key == claimed.key)
        .values(status=answer.status, body=answer.body, headers=answer.headers)
    )


FORGET_EXPIRED_SQL = "DELETE FROM slackwater.idempotency WHERE expires_at < now()"

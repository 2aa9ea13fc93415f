"""The audit log: action, resource, and its state before and after.

Each entry is written in the transaction of its change, so one is never there without the other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.access.rules import PRINCIPAL, Principal
from app.db.page_bounds import Most, bounded
from app.db.tables import audit
from app.http.request_id import REQUEST_ID


class Action(StrEnum):
    """The action."""

    CREATE = "create"
    REPLACE = "replace"
    DELETE = "delete"
    SET_DESIRED_STATE = "set_desired_state"
    RESTART = "restart"
    REPLAY = "replay"
    REWIND = "rewind"
    REVOKE = "revoke"
    CHECK = "check"


ResourceKind = Literal["stream", "table", "query", "api_key", "connection"]
Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a resource.

    Attributes:
        before: the resource's body before; None if it did not exist. Never a secret.
        after: its body after; None if it was deleted.
    """

    action: Action
    kind: ResourceKind
    name: str
    before: Body | None
    after: Body | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that the caller lacks the permission for.

    Attributes:
        request: method and route.
        kind: of the resource, where the route has one.
        code: of the answer.
        repeats: equal denials since the last entry that have no entry.
    """

    request: str
    kind: ResourceKind | None
    name: str | None
    code: str
    repeats: int


REFUSALS_KEPT = 10_000
"""A caller that is denied again and again must not fill the disk, nor push out the changes."""

MOST_BODY_BYTES = 64 * 1024
"""Longest body in an entry: more than people write by hand. Longer ones are shortened, or edits of 1 MiB bodies would fill the disk."""

BEGINNING_CHARS = 4_096

TRIM_SQL = (
    "DELETE FROM slackwater.audit WHERE at < now() - %(audit_ms)s * interval '1 ms'",
    """
    DELETE FROM slackwater.audit WHERE outcome = 'done' AND id <= (
        SELECT id FROM slackwater.audit WHERE outcome = 'done' ORDER BY id DESC OFFSET %(audit_rows)s LIMIT 1
    )
    """,
    f"""
    DELETE FROM slackwater.audit WHERE outcome = 'refused' AND id <= (
        SELECT id FROM slackwater.audit WHERE outcome = 'refused' ORDER BY id DESC OFFSET {REFUSALS_KEPT} LIMIT 1
    )
    """,  # noqa: S608 - made of constants
)


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """The entries to read; None: no condition.

    Attributes:
        resource: name.
        actor: name.
        since: inclusive.
        until: exclusive.
        before_id: the last entry of the previous page.
    """

    resource: str | None = None
    actor: str | None = None
    outcome: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    before_id: int | None = None

    def conditions(self) -> list[sa.ColumnElement[bool]]:
        conditions = []
        for column, value in ((audit.c.resource, self.resource), (audit.c.actor, self.actor), (audit.c.outcome, self.outcome)):
            if value is not None:
                conditions.append(column == value)
        if self.since is not None:
            conditions.append(audit.c.at >= self.since)
        if self.until is not None:
            conditions.append(audit.c.at < self.until)
        if self.before_id is not None:
            conditions.append(audit.c.id < self.before_id)
        return conditions


def note(connection: sa.Connection, change: Change) -> None:
    """Write the entry of a change into the transaction that makes it."""
    connection.execute(
        sa.insert(audit).values(
            **_who(PRINCIPAL.get()),
            action=change.action.value,
            resource_kind=change.kind,
            resource=change.name,
            outcome="done",
            before=_shortened(change.before),
            after=_shortened(change.after),
        )
    )


def _shortened(body: Body | None) -> Body | sa.Null:
    """Return a body unchanged, or the beginning of its text with a mark, its size and its digest: two different bodies look different."""
    if body is None:
        return sa.null()
    text = json.dumps(body)
    if len(text) <= MOST_BODY_BYTES:
        return body
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {"shortened": True, "bytes": len(text), "sha256": digest, "beginning": text[:BEGINNING_CHARS]}


async def note_refusal(engine: AsyncEngine, principal: Principal, refusal: Refusal) -> None:
    """Write the entry of a denied request, in its own transaction."""
    statement = sa.insert(audit).values(
        **_who(principal),
        action=refusal.request,
        resource_kind=refusal.kind,
        resource=refusal.name,
        outcome="refused",
        code=refusal.code,
        repeats=refusal.repeats,
    )
    async with engine.begin() as connection:
        await connection.execute(statement)


async def audit_entries(connection: AsyncConnection, entry_filter: AuditFilter, most: Most) -> list[sa.Row[Any]]:
    """Return entries, newest first. Where entries are large the last one marks the end of the page (``page_bounds``)."""
    statement = sa.select(audit).where(*entry_filter.conditions()).order_by(audit.c.id.desc()).limit(most.items)
    return list((await connection.execute(bounded(statement, ("before", "after"), most.bytes))).all())


def _who(principal: Principal | None) -> dict[str, Any]:
    """Return the columns of the caller; without a key the caller is anonymous."""
    request_id = REQUEST_ID.get()
    if principal is None:
        return {"actor_kind": "anonymous", "actor": "anonymous", "request_id": request_id}
    return {"actor_kind": principal.kind, "actor": principal.name, "actor_id": principal.id, "request_id": request_id}

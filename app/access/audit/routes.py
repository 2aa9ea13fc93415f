"""The audit log, for administrators."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import sqlalchemy as sa
from fastapi import APIRouter, Query, Request
from pydantic import Field

from app.access.audit.sql import AuditFilter, audit_entries
from app.db.page_bounds import Most
from app.http.answers.documented import answered, problems
from app.http.leaving import cancel_on_client_disconnect
from app.http.parameters import DEFAULT_LIMIT, MOST_OF_PAGE, OnlyKnownParameters, ParameterFaults, ServicesOf, bad_parameter
from app.http.requests.paging import Cursor, decode_cursor, page
from app.http.schemas import Answer
from app.http.values import parse_instant_ms

MOST_ENTRIES = 1_000
"""Most entries of a page: an entry has two definitions."""

router = APIRouter(prefix="/v1/audit", tags=["audit"], dependencies=[OnlyKnownParameters])


class AuditActor(Answer):
    """The one who made the change."""

    type: Literal["api_key", "oidc", "cli", "anonymous"] = Field(
        description="`cli`: somebody on the service's machine; `anonymous`: the service required no keys."
    )
    name: str = Field(description="Name of the key, subject of the token, or name of the machine's user.", examples=["deploy"])
    id: str | None = Field(description="Id of the key: a name can be used again after a key is revoked.")


class AuditResource(Answer):
    """The changed resource."""

    type: Literal["stream", "table", "query", "api_key", "connection"] | None = Field(description="null: the route has none.")
    name: str | None = Field(description="Its name; null: the route has none.")


class AuditEntry(Answer):
    """One change, or one request that was denied for lack of a role or a scope."""

    id: int = Field(description="Rises with every entry.")
    at: datetime = Field(description="When the change was made or denied.")
    actor: AuditActor = Field(description="Who made the request.")
    request_id: str | None = Field(
        description="Also in the answer's X-Request-Id and in the service's log; null: a command, or an entry for counted denials."
    )
    action: str = Field(
        description="`create`, `replace`, `delete`, `set_desired_state`, `restart`, `replay`, `rewind`, `revoke`, `check`; for a denied request "
        "the method and the route.",
        examples=["replace"],
    )
    resource: AuditResource = Field(description="The resource of the request.")
    outcome: Literal["done", "refused"] = Field(
        description="Whether the request was carried out, or denied for lack of a role or a scope."
    )
    code: str | None = Field(description="Error code of the denial.", examples=["role_too_low"])
    repeats: int = Field(
        description="Equal denials (the same caller, route, name and code) that this entry counts besides its own: there is one entry a "
        "minute. If a caller is denied for more than 30 names a minute, one entry without a name counts the rest."
    )
    before: dict[str, Any] | None = Field(description="The resource before; null: it did not exist.")
    after: dict[str, Any] | None = Field(description="The resource after; null: it was deleted.")


class AuditPage(Answer):
    """A page of entries."""

    items: list[AuditEntry] = Field(description="Entries, newest first.")
    next: str | None = Field(description="Cursor of the next page; null on the last.")


_ENTRY: dict[str, Any] = {
    "id": 17,
    "at": "2025-11-21T08:00:00Z",
    "actor": {"type": "api_key", "name": "deploy", "id": "0f3c1f6e-8a55-4b3e-9d55-0f7f3d2a9b11"},
    "request_id": "0193f1d2-7c1e-7000-8000-3f0c7c9d2b11",
    "action": "set_desired_state",
    "resource": {"type": "query", "name": "delays_by_airport"},
    "outcome": "done",
    "code": None,
    "repeats": 0,
    "before": {"desired_state": "running"},
    "after": {"desired_state": "paused"},
}
_Moment = Annotated[str | None, Query(max_length=64, description="RFC 3339, or milliseconds since 1970.")]
_Name = Annotated[
    str | None, Query(max_length=255, pattern=r"^[^\x00]+$", description="Only entries about the resource of this name.")
]


@router.get(
    "",
    summary="Read the audit log",
    response_model=AuditPage,
    responses={200: answered({"items": [_ENTRY], "next": None}, "Entries, newest first."), **problems(400)},
)
@cancel_on_client_disconnect
async def get_audit(
    request: Request,  # noqa: ARG001 - the decorator's
    services: ServicesOf,
    resource: _Name = None,
    actor: Annotated[str | None, Query(max_length=255, pattern=r"^[^\x00]+$", description="Only entries of this actor.")] = None,
    outcome: Annotated[Literal["done", "refused"] | None, Query(description="Only entries with this outcome.")] = None,
    since: _Moment = None,
    until: _Moment = None,
    limit: Annotated[int, Query(ge=1, le=MOST_ENTRIES, description=MOST_OF_PAGE)] = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> AuditPage:
    """Who changed which source, query or key, with the states before and after; and which requests were denied for lack of a role or a scope.

    An entry is committed with its change. The log has no appended records and no reads. It keeps the newest 10,000 denials, and the newest
    `SLACKWATER_AUDIT_ROWS` other entries for `SLACKWATER_AUDIT_RETENTION_MS`. A body over 64 KiB is shortened (`"shortened": true`). `since`
    is inclusive, `until` is exclusive.
    """
    key = decode_cursor(cursor, [int])
    before_id = None if key is None else int(key[0])
    first, last, faults = None, None, ParameterFaults()
    with faults.part():
        first = _moment("since", since)
    with faults.part():
        last = _moment("until", until)
    faults.raise_all()
    entry_filter = AuditFilter(resource, actor, outcome, first, last, before_id)
    async with services.database.paging() as connection:
        entries = await audit_entries(connection, entry_filter, Most(limit + 1, services.settings.limits.page_bytes))
    rows, following = page(entries, limit, lambda row: [row.id])
    return AuditPage(items=[_entry(row) for row in rows], next=following)


def _moment(parameter: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.fromtimestamp(parse_instant_ms(text) / 1000, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise bad_parameter(parameter, str(error)) from error


def _entry(row: sa.Row[Any]) -> AuditEntry:
    return AuditEntry(
        id=row.id,
        at=row.at,
        actor=AuditActor(type=row.actor_kind, name=row.actor, id=row.actor_id),
        request_id=row.request_id,
        action=row.action,
        resource=AuditResource(type=row.resource_kind, name=row.resource),
        outcome=row.outcome,
        code=row.code,
        repeats=row.repeats,
        before=row.before,
        after=row.after,
    )

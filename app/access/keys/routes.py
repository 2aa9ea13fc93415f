"""API keys over HTTP: create, list, revoke. For administrators."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Path, Response
from pydantic import ConfigDict, Field

from app.access.keys.sql import ApiKeyRow, create_key, list_keys, revoke_key
from app.access.rules import NAME_PATTERN, Role
from app.access.scopes import MOST_PATTERNS, scope_of
from app.access.scopes import PATTERN as SCOPE_PATTERN
from app.errors.app_errors import Forbidden
from app.http.answers.documented import answered, body_examples, problems
from app.http.parameters import DEFAULT_LIMIT, Inspection, Limit, OnlyKnownParameters, ServicesOf, Transaction
from app.http.requests.bodies import JsonBody, request_body, validated
from app.http.requests.paging import Cursor, bad_cursor, decode_cursor, page
from app.http.schemas import Answer
from engine.expressions.durations import Duration
from engine.expressions.limits import FewFields

RoleText = Literal["read", "write", "admin"]
router = APIRouter(prefix="/v1/api-keys", tags=["api keys"], dependencies=[OnlyKnownParameters])


class ApiKeyBody(FewFields):
    """A key to create."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(
        pattern=NAME_PATTERN, description="Who will use it; the history of queries shows it.", examples=["dashboard"]
    )
    role: RoleText = Field(description="`read`; `write`: also sources, records, queries; `admin`: also keys.")
    scope: list[Annotated[str, Field(pattern=SCOPE_PATTERN)]] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_PATTERNS,
        description="Patterns of the names of relations and queries that the key may see, `*` for any characters; null: all. It sees a query "
        "only with all that it reads and writes. Lists leave out the rest. `/metrics` and files need a key without a scope. Not with the role "
        "`admin`.",
        examples=[["orders*", "prices"]],
    )
    expires_in: Duration | None = Field(default=None, gt=0, description="How long it is valid; null: until it is revoked.")


class ApiKeyAnswer(Answer):
    """A key, without its secret part."""

    name: str = Field(description="Who uses it.")
    prefix: str = Field(description="How the key begins: enough to tell keys apart.", examples=["sw_Xa81Tz0q"])
    role: RoleText = Field(description="What it may do; each role includes the ones before: `read`, `write`, `admin`.")
    scope: list[str] | None = Field(description="Patterns of the names that it may see; null: all.")
    created_at: datetime = Field(description="When it was created.")
    last_used_at: datetime | None = Field(description="To the minute; null: never.")
    expires_at: datetime | None = Field(description="When it expires; null: never.")
    revoked_at: datetime | None = Field(description="When it was revoked; null: it is not revoked.")


class NewApiKeyAnswer(ApiKeyAnswer):
    """A new key: the only answer that ever shows it."""

    key: str = Field(description="Store it now: only its digest is stored.")


class ApiKeyPage(Answer):
    """A page of keys."""

    items: list[ApiKeyAnswer] = Field(description="Keys, with revoked ones.")
    next: str | None = Field(description="Cursor of the next page; null on the last.")


_KEY: dict[str, Any] = {
    "name": "dashboard",
    "prefix": "sw_Xa81Tz0q",
    "role": "read",
    "scope": ["orders*", "prices"],
    "created_at": "2025-11-21T08:00:00Z",
    "last_used_at": None,
    "expires_at": "2026-11-21T08:00:00Z",
    "revoked_at": None,
}
_NEW = {**_KEY, "key": "sw_Xa81Tz0q_…"}
KeyName = Annotated[str, Path(description="Name of the key.", examples=["dashboard"], max_length=63, pattern=r"^[^\x00]+$")]


@router.post(
    "",
    summary="Create an API key",
    status_code=201,
    response_model=NewApiKeyAnswer,
    responses={201: answered(_NEW, "Created. The key is shown only now."), **problems(400, 403, 409, 413, 415, 422)},
    openapi_extra=request_body(
        "ApiKeyBody",
        body_examples(
            read=("For a dashboard, for a year", {"name": "dashboard", "role": "read", "expires_in": "365d"}),
            scope=("For one team's relations", {"name": "orders-team", "role": "write", "scope": ["orders*", "prices"]}),
            write=("For a program that appends records", {"name": "collector", "role": "write"}),
        ),
    ),
)
def post_api_key(body: JsonBody, transaction: Transaction, services: ServicesOf, response: Response) -> NewApiKeyAnswer:
    """Create a key. The service stores only its SHA-256: if the key is lost, create a new one.

    Create the first key on the service's machine: `slackwater keys create first --role admin`. A service that requires no keys creates none
    over HTTP, because anyone who reaches it once would have a key that stays valid.
    """
    if not services.settings.is_key_required:
        raise Forbidden(
            "keys_from_command_line",
            "this service requires no keys, so it cannot tell who may create one; run `slackwater keys create` on its machine",
        )
    requested = validated(ApiKeyBody, body)
    row, new_key = create_key(
        transaction, requested.name, Role.of(requested.role), requested.expires_in, scope_of(requested.scope)
    )
    response.headers["Cache-Control"] = "no-store"
    return NewApiKeyAnswer(**shown_key(row), key=new_key.text)


@router.get(
    "",
    summary="List API keys",
    response_model=ApiKeyPage,
    responses={200: answered({"items": [_KEY], "next": None}, "Keys, with revoked ones."), **problems(400)},
)
def get_api_keys(transaction: Inspection, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None) -> ApiKeyPage:
    """Names, roles, scopes, when they expire and when they were last used. The secret parts are stored nowhere."""
    keys = list_keys(transaction, limit + 1, _after(cursor))
    rows, following = page(keys, limit, lambda row: [str(row.id)])
    return ApiKeyPage(items=[ApiKeyAnswer(**shown_key(row)) for row in rows], next=following)


@router.delete(
    "/{name}",
    summary="Revoke an API key",
    status_code=204,
    responses={204: {"description": "Revoked."}, **problems(400, 404)},
)
def delete_api_key(name: KeyName, transaction: Transaction) -> Response:
    """The key is invalid within five seconds. Its open event streams end then, with their next event or sign of life.

    The key stays in the list; its name can be used again.
    """
    revoke_key(transaction, name)
    return Response(status_code=204)


def _after(cursor: str | None) -> UUID | None:
    key = decode_cursor(cursor, [str])
    if key is None:
        return None
    try:
        return UUID(str(key[0]))
    except ValueError as error:
        raise bad_cursor() from error


def shown_key(row: ApiKeyRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in ApiKeyAnswer.model_fields}

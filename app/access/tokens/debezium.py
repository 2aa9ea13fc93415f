"""Debezium Server's HTTP sink with `authentication.type=jwt`: it asks for a token before it sends, and gets back its own API key."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import Field

from app.access.tokens.verifying import Authenticator
from app.http.answers.documented import answered, body_examples, problems
from app.http.parameters import OnlyKnownParameters
from app.http.requests.bodies import JsonBody, request_body, validated
from app.http.schemas import Answer
from engine.expressions.model import Model

router = APIRouter(prefix="/v1/debezium/auth", tags=["records"], dependencies=[OnlyKnownParameters])

EXPIRES_MS = 365 * 86_400_000
"""After this time Debezium asks again, and stops if it gets no answer. Each request checks the key itself, and answers 401."""

_MOST_CHARS = 8_192
_TOKEN: dict[str, Any] = {
    "jwt": "sw_…", "jwt_refresh_token": "sw_…", "expires_in": EXPIRES_MS, "refresh_token_expires_in": EXPIRES_MS,
}  # fmt: skip
_RESPONSES: dict[int | str, dict[str, Any]] = {200: answered(_TOKEN, "The key."), **problems(400, 401, 413, 415, 422)}


class DebeziumCredentials(Model):
    """What Debezium sends first."""

    username: str = Field(max_length=_MOST_CHARS, description="Any text: the key identifies the caller.", examples=["debezium"])
    password: str = Field(max_length=_MOST_CHARS, description="An API key, or a token.", examples=["sw_…"])
    token_expiry_in_minutes: int | None = Field(default=None, description="Ignored.")
    refresh_token_expiry_in_minutes: int | None = Field(default=None, description="Ignored.")


class DebeziumRefresh(Model):
    """What Debezium sends when the time is over."""

    jwt_refresh_token: str = Field(max_length=_MOST_CHARS, description="From the previous answer.", examples=["sw_…"])
    token_expiry_in_minutes: int | None = Field(default=None, description="Ignored.")
    refresh_token_expiry_in_minutes: int | None = Field(default=None, description="Ignored.")


class DebeziumToken(Answer):
    """What Debezium sends with each request."""

    jwt: str = Field(description="The key of the request.")
    jwt_refresh_token: str = Field(description="The same.")
    expires_in: int = Field(description="Milliseconds.")
    refresh_token_expires_in: int = Field(description="Milliseconds.")


@router.post(
    "/authenticate",
    summary="Authenticate Debezium's HTTP sink",
    response_model=DebeziumToken,
    responses=_RESPONSES,
    openapi_extra=request_body(
        "DebeziumCredentials", body_examples(key=("An API key as the password", {"username": "debezium", "password": "sw_…"}))
    ),
)
async def admit_debezium(request: Request, body: JsonBody) -> DebeziumToken:
    """The sink's `authentication.jwt.url` is `…/v1/debezium/` and its password an API key with the role write. The service issues nothing
    new: it checks the key and returns it. Each request uses the key as any other client does.
    """  # noqa: D205 - two sentences
    return await _token(request, validated(DebeziumCredentials, body).password)


@router.post(
    "/refreshToken",
    summary="Renew the token of Debezium's HTTP sink",
    response_model=DebeziumToken,
    responses=_RESPONSES,
    openapi_extra=request_body(
        "DebeziumRefresh", body_examples(key=("The token of the previous answer", {"jwt_refresh_token": "sw_…"}))
    ),
)
async def refresh_debezium(request: Request, body: JsonBody) -> DebeziumToken:
    """As `authenticate`, with the token of its answer."""
    return await _token(request, validated(DebeziumRefresh, body).jwt_refresh_token)


async def _token(request: Request, key: str) -> DebeziumToken:
    authenticator: Authenticator = request.app.state.door
    await authenticator.recognise(key)
    return DebeziumToken(jwt=key, jwt_refresh_token=key, expires_in=EXPIRES_MS, refresh_token_expires_in=EXPIRES_MS)

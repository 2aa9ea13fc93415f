"""Debezium Server's HTTP sink with `authentication.type=jwt`: it asks for a token before it sends, and gets the API key that it gave."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import Field

from app.api.bodies import JsonBody, request_body, validated
from app.api.deps import OnlyKnownParameters
from app.api.documented import answered, body_examples, problems
from app.api.schemas import Answer
from app.api.tokens import Doorkeeper
from engine.definition.model import Model

router = APIRouter(prefix="/v1/debezium/auth", tags=["records"], dependencies=[OnlyKnownParameters])

EXPIRES_MS = 3_600_000
"""After it Debezium asks again. The key itself may count longer, or less long: that each request shows."""

_MOST_CHARS = 8_192
_TOKEN: dict[str, Any] = {
    "jwt": "sw_…", "jwtRefreshToken": "sw_…", "expiresIn": EXPIRES_MS, "refreshTokenExpiresIn": EXPIRES_MS,
}  # fmt: skip
_RESPONSES: dict[int | str, dict[str, Any]] = {200: answered(_TOKEN, "The key."), **problems(400, 401, 413, 415, 422)}


class DebeziumCredentials(Model):
    """What Debezium sends first."""

    username: str = Field(max_length=_MOST_CHARS, description="Any: the key says who it is.", examples=["debezium"])
    password: str = Field(max_length=_MOST_CHARS, description="An API key, or a token.", examples=["sw_…"])
    tokenExpiryInMinutes: int | None = Field(default=None, description="Not looked at.")  # noqa: N815 - Debezium's
    refreshTokenExpiryInMinutes: int | None = Field(default=None, description="Not looked at.")  # noqa: N815 - Debezium's


class DebeziumRefresh(Model):
    """What it sends when the time is over."""

    jwtRefreshToken: str = Field(max_length=_MOST_CHARS, description="From the answer before.", examples=["sw_…"])  # noqa: N815 - Debezium's
    tokenExpiryInMinutes: int | None = Field(default=None, description="Not looked at.")  # noqa: N815 - Debezium's
    refreshTokenExpiryInMinutes: int | None = Field(default=None, description="Not looked at.")  # noqa: N815 - Debezium's


class DebeziumToken(Answer):
    """What Debezium sends with each request."""

    jwt: str = Field(description="The key that was given.")
    jwtRefreshToken: str = Field(description="The same.")  # noqa: N815 - Debezium's
    expiresIn: int = Field(description="Milliseconds.")  # noqa: N815 - Debezium's
    refreshTokenExpiresIn: int = Field(description="Milliseconds.")  # noqa: N815 - Debezium's


@router.post(
    "/authenticate",
    summary="Let Debezium's HTTP sink in",
    response_model=DebeziumToken,
    responses=_RESPONSES,
    openapi_extra=request_body(
        "DebeziumCredentials", body_examples(key=("An API key as the password", {"username": "debezium", "password": "sw_…"}))
    ),
)
async def admit_debezium(request: Request, body: JsonBody) -> DebeziumToken:
    """The sink's `authentication.jwt.url` is `…/v1/debezium/` and its password an API key with the role write. Nothing new is issued: the key
    is looked at and given back, and counts in each request as it would anywhere.
    """  # noqa: D205 - two sentences
    return await _token(request, validated(DebeziumCredentials, body).password)


@router.post(
    "/refreshToken",
    summary="Let Debezium's HTTP sink stay",
    response_model=DebeziumToken,
    responses=_RESPONSES,
    openapi_extra=request_body(
        "DebeziumRefresh", body_examples(key=("The token of the answer before", {"jwtRefreshToken": "sw_…"}))
    ),
)
async def refresh_debezium(request: Request, body: JsonBody) -> DebeziumToken:
    """As `authenticate`, with what that gave."""
    return await _token(request, validated(DebeziumRefresh, body).jwtRefreshToken)


async def _token(request: Request, key: str) -> DebeziumToken:
    door: Doorkeeper = request.app.state.door
    await door.recognise(key)
    return DebeziumToken(jwt=key, jwtRefreshToken=key, expiresIn=EXPIRES_MS, refreshTokenExpiresIn=EXPIRES_MS)

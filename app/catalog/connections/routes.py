"""Connections: put, get, list, check, delete. Values of secrets are accepted here and never returned."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Final, Literal

from anyio import to_thread
from fastapi import APIRouter, Response
from pydantic import Field, RootModel

from app.access.idempotency import answered_once
from app.access.rules import NAME_PATTERN
from app.catalog.connections.sql import (
    ConnectionRow,
    delete_connection,
    get_connection,
    list_connections,
    note_check,
    put_connection,
)
from app.db.page_bounds import Most
from app.http.answers.documented import answered, body_examples, packed, problems
from app.http.parameters import DEFAULT_LIMIT, Inspection, Limit, Name, OnlyKnownParameters, Services, ServicesOf, Transaction
from app.http.requests.bodies import JsonBody, request_body
from app.http.requests.conditions import (
    NOT_MODIFIED,
    IdempotencyKey,
    IfChanged,
    OfPut,
    OfWrite,
    not_modified,
    set_etag,
    set_read_headers,
)
from app.http.requests.paging import Cursor, decode_cursor, page
from app.http.schemas import Answer
from engine.connections.attempts import Reason
from engine.connections.checking import MOST_S, Outcome, check
from engine.connections.kafka import KafkaConnection
from engine.connections.keys import SecretKeys
from engine.connections.kinds import AnyConnection, read_connection
from engine.connections.postgres import PostgresConnection
from engine.connections.registry import RegistryConnection
from engine.connections.s3 import S3Connection
from engine.definition.connections.hosts import HostBounds, HostRefused
from engine.definition.connections.secret import taken_out
from engine.errors import DefinitionInvalid, Problem


class ConnectionDefinition(
    RootModel[Annotated[KafkaConnection | RegistryConnection | S3Connection | PostgresConnection, Field(discriminator="type")]]
):
    """A connection. Each secret is a value, `env:NAME` (a variable `SLACKWATER_SECRET_…`) or `file:PATH` (below `SLACKWATER_SECRETS_DIR`)."""


class ConnectionAnswer(Answer):
    """A connection, without the values of its secrets."""

    name: str = Field(description="Its name, which connectors use.", examples=["orders-broker"])
    type: Literal["kafka", "registry", "s3", "postgres"] = Field(description="Its kind.")
    definition: dict[str, Any] = Field(
        description='As stored, with every default. `{"set": true}` replaces a secret that was sent as a value; '
        "`env:` and `file:` are shown."
    )
    version: int = Field(description="Rises with every change; the ETag.", examples=[1])
    created_at: datetime = Field(description="When it was created.")
    updated_at: datetime = Field(description="When it was last changed.")


class ConnectionPage(Answer):
    """A page of connections."""

    items: list[ConnectionAnswer] = Field(description="Connections, by name.")
    next: str | None = Field(description="Cursor of the next page; null on the last.")


class CheckAnswer(Answer):
    """Result of a check of a connection."""

    outcome: Literal["reached", "not_reached"] = Field(
        description="Whether the other system answered and accepted the credentials."
    )
    reason: Reason | None = Field(
        description="Why not; null: it was reached. `secret_unavailable`: a secret cannot be decrypted or read; `host_not_allowed`: see "
        "`SLACKWATER_CONNECTION_HOSTS`; `not_allowed`: the credentials are valid, but may not read what the check reads."
    )
    detail: str = Field(description="The system that was reached, or the fault and its cure.", examples=["3 brokers, 12 topics"])
    took_ms: int = Field(description="How long it took.", examples=[48])


KAFKA: Final[dict[str, Any]] = {
    "type": "kafka",
    "bootstrap": "broker-1.example.com:9093,broker-2.example.com:9093",
    "tls": {"ca": "file:kafka/ca.pem"},
    "sasl": {"mechanism": "SCRAM-SHA-512", "username": "slackwater", "password": "env:SLACKWATER_SECRET_ORDERS"},
}
REGISTRY: Final[dict[str, Any]] = {
    "type": "registry",
    "urls": ["https://registry.example.com"],
    "username": "slackwater",
    "password": "file:registry/password",
}
S3: Final[dict[str, Any]] = {
    "type": "s3",
    "bucket": "lake",
    "region": "eu-central-1",
    "access_key_id": "AKIAIOSFODNN7EXAMPLE",
    "secret_access_key": "env:SLACKWATER_SECRET_LAKE",
}
POSTGRES: Final[dict[str, Any]] = {
    "type": "postgres",
    "host": "db.example.com",
    "database": "shop",
    "username": "slackwater",
    "password": "<the password>",
    "tls": {},
}
SHOWN: Final[dict[str, Any]] = {
    "name": "shop",
    "type": "postgres",
    "definition": {
        "type": "postgres",
        "host": "db.example.com",
        "port": 5432,
        "database": "shop",
        "username": "slackwater",
        "password": {"set": True},
        "tls": {"ca": None, "certificate": None, "key": None, "key_password": None, "verify_host": True},
    },
    "version": 1,
    "created_at": "2025-11-21T08:00:00Z",
    "updated_at": "2025-11-21T08:00:00Z",
}
CHECKED: Final[dict[str, Any]] = {"outcome": "reached", "reason": None, "detail": "Postgres 17", "took_ms": 48}
NOT_REACHED: Final[dict[str, Any]] = {
    "outcome": "not_reached",
    "reason": "authentication",
    "detail": "the server does not accept the password; correct `username` and `password`",
    "took_ms": 31,
}


_NAME: Final = re.compile(NAME_PATTERN)
_ETAG: Final = {"ETag": "The version."}
router = APIRouter(prefix="/v1/connections", tags=["connections"], dependencies=[OnlyKnownParameters])


@router.put(
    "/{name}",
    summary="Create or replace a connection",
    response_model=ConnectionAnswer,
    responses={
        200: answered(SHOWN, "It existed; it has this definition now.", _ETAG),
        201: {"model": ConnectionAnswer, **answered(SHOWN, "Created.", {**_ETAG, "Location": "Its path."})},
        **problems(400, 409, 412, 413, 415, 422),
    },
    openapi_extra=request_body(
        "ConnectionDefinition",
        body_examples(
            kafka=("Brokers with TLS and SCRAM; the password is a variable", KAFKA),
            registry=("A schema registry; the password is a file", REGISTRY),
            s3=("A bucket", S3),
            postgres=("A database; the password is stored, encrypted", POSTGRES),
        ),
    ),
)
def put_connection_of(
    name: Name,
    body: JsonBody,
    transaction: Transaction,
    response: Response,
    conditions: OfPut,
    services: ServicesOf,
    idempotency_key: IdempotencyKey = None,
) -> ConnectionAnswer | Response:
    """Store the address and the credentials of a system. Nothing is connected: `POST …/check` does that.

    A secret is a value, which is stored encrypted (`SLACKWATER_SECRET_KEY`) and never shown again, or `env:NAME` or `file:PATH`, which the
    connecting process reads when it connects. Every PUT contains all secrets. An equal definition changes nothing.
    """
    secret_sources = services.settings.secret_sources
    definition = _checked(name, body, secret_sources.hosts)

    def make(response: Response) -> ConnectionAnswer:
        result = put_connection(transaction, name, definition, secret_sources.keys, conditions)
        response.status_code = 201 if result.is_created else 200
        if result.is_created:
            response.headers["Location"] = f"/v1/connections/{name}"
        set_etag(response, result.row.version)
        return _shown(result.row)

    comparable = _marked(definition, secret_sources.keys)
    return answered_once(transaction, idempotency_key, ("PUT", f"/v1/connections/{name}"), comparable, make, response, status=201)


@router.get(
    "",
    summary="List connections",
    response_model=ConnectionPage,
    responses={200: answered({"items": [SHOWN], "next": None}, "Connections, by name."), **problems(400)},
)
def get_connections(
    services: ServicesOf, transaction: Inspection, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> ConnectionPage:
    """Names and addresses, without the values of secrets."""
    after = decode_cursor(cursor, [str])
    most = Most(limit + 1, services.settings.limits.page_bytes)
    connections, is_beyond = list_connections(transaction, most, None if after is None else str(after[0]))
    rows, following = page(connections, limit, lambda row: [row.name], is_last_beyond=is_beyond)
    return ConnectionPage(items=[_shown(row) for row in rows], next=following)


@router.get(
    "/{name}",
    summary="Get a connection",
    response_model=ConnectionAnswer,
    responses={200: answered(SHOWN, "The connection.", _ETAG), **NOT_MODIFIED, **problems(400, 404)},
)
def get_connection_of(
    name: Name, transaction: Inspection, response: Response, if_none_match: IfChanged = None
) -> ConnectionAnswer | Response:
    """Name and address, without the values of secrets."""
    row = get_connection(transaction, name)
    same = not_modified(if_none_match, row.version)
    if same is not None:
        return same
    set_read_headers(response, row.version)
    return _shown(row)


@router.delete(
    "/{name}",
    summary="Delete a connection",
    status_code=204,
    responses={204: {"description": "Deleted, with its secrets."}, **problems(400, 404, 409, 412)},
)
def delete_connection_of(name: Name, transaction: Transaction, conditions: OfWrite) -> Response:
    """Delete the connection with its secrets. It is refused while a relation or a query names it."""
    delete_connection(transaction, name, conditions)
    return Response(status_code=204)


@router.post(
    "/{name}/check",
    summary="Check a connection",
    response_model=CheckAnswer,
    responses={
        200: {
            "description": "The result, also if nothing was reached.",
            "content": {
                "application/json": {
                    "examples": {
                        "reached": {"summary": "It answers", "value": packed(CHECKED)},
                        "not_reached": {"summary": "It does not accept the credentials", "value": packed(NOT_REACHED)},
                    }
                }
            },
        },
        **problems(400, 404, 429),
    },
)
async def check_connection(name: Name, services: ServicesOf) -> CheckAnswer:
    """Connect from here, ask one question, and disconnect, within five seconds: brokers for their topics, a registry for its subjects, a bucket
    for its list, a database for `SELECT 1`.

    The service's process connects. Drivers and workers on other hosts may reach other systems, and need the same variables and files.
    """  # noqa: D205 - the first sentence is a list
    row = await to_thread.run_sync(partial(_require, services, name))
    outcome = await _tried(services, row)
    await to_thread.run_sync(partial(_record_outcome, services, name, outcome))
    return CheckAnswer(outcome=outcome.outcome, reason=outcome.reason, detail=outcome.detail, took_ms=outcome.took_ms)


async def _tried(services: Services, row: ConnectionRow) -> Outcome:
    """Check in a thread. The thread is left behind if the system does not return in time (names that cannot be resolved)."""
    limit = services.gates.checks
    limit.enter()
    running = asyncio.get_running_loop().run_in_executor(None, check, row.stored, services.settings.secret_sources)
    running.add_done_callback(lambda _: limit.leave())
    try:
        async with asyncio.timeout(MOST_S + 1):
            return await asyncio.shield(running)
    except TimeoutError:
        return Outcome("timeout", f"no answer within {MOST_S:g} s; is the network's DNS slow?", round(1000 * (MOST_S + 1)))


def _require(services: Services, name: str) -> ConnectionRow:
    with services.database.inspection.begin() as transaction:
        return get_connection(transaction, name)


def _record_outcome(services: Services, name: str, outcome: Outcome) -> None:
    with services.database.control.begin() as transaction:
        note_check(transaction, name, outcome)


def _checked(name: str, body: Any, hosts: HostBounds) -> AnyConnection:
    if not _NAME.fullmatch(name):
        detail = (
            f"{name[:80]!r} is not a valid name: use up to 63 of a-z, 0-9, '.', '_' and '-'; the first is a letter or a digit"
        )
        raise DefinitionInvalid([Problem("", "malformed_name", detail)])
    definition = read_connection(body)
    for endpoint in (*definition.endpoints, *definition.further_endpoints):
        try:
            hosts.check(endpoint.host)
        except HostRefused as error:
            raise DefinitionInvalid([Problem("", "connection_host_refused", str(error))]) from error
    return definition


def _marked(definition: AnyConnection, keys: SecretKeys | None) -> dict[str, Any]:
    """Return the form in which repeated requests are compared. It has marks of secrets instead of their values, because it is stored."""
    shown, values = taken_out(definition)
    return {
        "definition": shown,
        "secrets": {} if keys is None else {pointer: keys.mark(text) for pointer, text in values.items()},
    }


def _shown(row: ConnectionRow) -> ConnectionAnswer:
    return ConnectionAnswer(**{name: getattr(row, name) for name in ConnectionAnswer.model_fields})

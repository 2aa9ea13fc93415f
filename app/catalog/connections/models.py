"""Bodies and answers of connections."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import Field, RootModel

from app.http.schemas import Answer
from engine.connections.attempts import Reason
from engine.connections.kafka import KafkaConnection
from engine.connections.postgres import PostgresConnection
from engine.connections.registry import RegistryConnection
from engine.connections.s3 import S3Connection


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

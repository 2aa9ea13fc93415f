"""Kafka brokers: TLS, SASL, and librdkafka's options for them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from engine.connections.secret_sources import SecretReader
from engine.definition.connections.definition import Connection, Matching, Strict, Tls, Url, User, endpoint_of, endpoint_of_url
from engine.definition.connections.hosts import Endpoint
from engine.definition.connections.secret import Secret

MOST_SERVERS: Final = 32
_BY_PASSWORD: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_OF_TOKENS: Final = ("token_url", "client_id", "client_secret")


def _check_servers(text: str) -> str:
    servers = [server.strip() for server in text.split(",")]
    if len(servers) > MOST_SERVERS:
        raise ValueError(f"has more than {MOST_SERVERS} servers; some of them are enough to find the others")
    for server in servers:
        endpoint_of(server)
    return ",".join(servers)


class Sasl(Strict):
    """Credentials."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = Field(
        description="`PLAIN` and `OAUTHBEARER` send what they know to the broker: use them with `tls`."
    )
    username: User | None = Field(default=None, description="Of PLAIN and SCRAM.", examples=["slackwater"])
    password: Secret | None = Field(default=None, description="Of PLAIN and SCRAM.", examples=["env:SLACKWATER_SECRET_ORDERS"])
    token_url: Url | None = Field(
        default=None,
        description="Of OAUTHBEARER: where tokens are issued for client credentials (OpenID Connect).",
        examples=["https://issuer.example.com/token"],
    )
    client_id: User | None = Field(default=None, description="Of OAUTHBEARER.", examples=["slackwater"])
    client_secret: Secret | None = Field(default=None, description="Of OAUTHBEARER.", examples=["file:issuer/secret"])
    scope: Annotated[str, Matching(r"[\x20-\x7e]{1,512}", "has 1 to 512 characters of ASCII")] | None = Field(
        default=None, description="Of OAUTHBEARER: which is asked for; null: the issuer decides.", examples=["kafka"]
    )

    @model_validator(mode="after")
    def _fits_the_mechanism(self) -> Self:
        needed = _BY_PASSWORD_FIELDS if self.mechanism in _BY_PASSWORD else _OF_TOKENS
        others = (*_OF_TOKENS, "scope") if self.mechanism in _BY_PASSWORD else _BY_PASSWORD_FIELDS
        missing = [name for name in needed if getattr(self, name) is None]
        if missing:
            raise ValueError(f"the mechanism {self.mechanism} needs {_listed(missing)}")
        beyond = [name for name in others if getattr(self, name) is not None]
        if beyond:
            raise ValueError(f"the mechanism {self.mechanism} has no {_listed(beyond)}; leave it out")
        return self


_BY_PASSWORD_FIELDS: Final = ("username", "password")


class KafkaConnection(Connection):
    """Brokers of Kafka. There are no free options of the client: some of them start programs and load libraries."""

    type: Literal["kafka"] = Field(description="Which kind of connection.")
    bootstrap: Annotated[str, Field(max_length=8_192), AfterValidator(_check_servers)] = Field(
        description="Brokers that are asked first, as host:port with commas between them. They name the others, which are connected to as well.",
        examples=["broker-1.example.com:9093,broker-2.example.com:9093"],
    )
    tls: Tls | None = Field(default=None, description="null: no TLS.")
    sasl: Sasl | None = Field(
        default=None, description="null: nobody is asked who it is, or certificates say it (`tls.certificate`)."
    )

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        return [endpoint_of(server) for server in self.bootstrap.split(",")]

    @property
    def further_endpoints(self) -> Sequence[Endpoint]:
        url = None if self.sasl is None else self.sasl.token_url
        return [] if url is None else [endpoint_of_url(url)]


def librdkafka_options(definition: KafkaConnection, reader: SecretReader) -> dict[str, str]:
    """Return librdkafka's options for a connection. They hold secrets: make them where the client is made, and store them nowhere.

    Raises:
        SecretMissing: a reference has no target.
    """
    tls, sasl = definition.tls, definition.sasl
    protocol = ("SASL_" if sasl is not None else "") + ("SSL" if tls is not None else "PLAINTEXT")
    options = {"bootstrap.servers": definition.bootstrap, "security.protocol": protocol}
    if tls is not None:
        options |= _tls_options(tls, reader)
    if sasl is not None:
        options |= _sasl_options(sasl, reader)
        if sasl.token_url is not None and tls is not None and tls.ca is not None:
            options["https.ca.pem"] = reader.public(tls.ca)
    return options


def silent_logger() -> logging.Logger:
    """Return a logger that drops everything: without one librdkafka writes to the standard error."""
    logger = logging.getLogger("slackwater.kafka")
    logger.propagate, logger.disabled = False, True
    return logger


def _tls_options(tls: Tls, reader: SecretReader) -> dict[str, str]:
    options = {"ssl.endpoint.identification.algorithm": "https" if tls.verify_host else "none"}
    if tls.ca is not None:
        options["ssl.ca.pem"] = reader.public(tls.ca)
    if tls.certificate is not None and tls.key is not None:
        options |= {"ssl.certificate.pem": reader.text(tls.certificate), "ssl.key.pem": reader.text(tls.key)}
    if tls.key_password is not None:
        options["ssl.key.password"] = reader.text(tls.key_password)
    return options


def _sasl_options(sasl: Sasl, reader: SecretReader) -> dict[str, str]:
    options: dict[str, str] = {"sasl.mechanisms": sasl.mechanism}
    if sasl.username is not None and sasl.password is not None:
        options |= {"sasl.username": sasl.username, "sasl.password": reader.text(sasl.password)}
    if sasl.token_url is not None and sasl.client_id is not None and sasl.client_secret is not None:
        options |= {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": sasl.token_url,
            "sasl.oauthbearer.client.id": sasl.client_id,
            "sasl.oauthbearer.client.secret": reader.text(sasl.client_secret),
        }
    if sasl.scope is not None:
        options["sasl.oauthbearer.scope"] = sasl.scope
    return options


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)

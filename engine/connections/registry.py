"""Schema registries that speak Confluent's protocol, and httpx's options for them."""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, Self

import httpx
from pydantic import Field, model_validator

from engine.connections.certificates import tls_context
from engine.connections.secret_sources import SecretMissing, SecretReader
from engine.definition.connections.definition import Connection, Tls, Url, User, endpoint_of_url, refuse_both
from engine.definition.connections.hosts import Endpoint
from engine.definition.connections.secret import Secret

MOST_URLS: Final = 8
_HEADER_TEXT: Final = re.compile(r"[\x20-\x7e]+")


class RegistryConnection(Connection):
    """A schema registry."""

    type: Literal["registry"] = Field(description="Which kind of connection.")
    urls: Annotated[list[Url], Field(min_length=1, max_length=MOST_URLS)] = Field(
        description="Of its nodes; where one gives no answer the next is asked.", examples=[["https://registry.example.com:8081"]]
    )
    username: User | None = Field(default=None, description="Basic authentication, with `password`.", examples=["slackwater"])
    password: Secret | None = Field(default=None, description="Of `username`.", examples=["env:SLACKWATER_SECRET_REGISTRY"])
    token: Secret | None = Field(default=None, description="Bearer authentication.", examples=["file:registry/token"])
    tls: Tls | None = Field(default=None, description="Of https:// URLs; null: certificates that the system trusts.")

    @model_validator(mode="after")
    def _says_who_asks_once(self) -> Self:
        refuse_both(username=self.username, token=self.token)
        if (self.username is None) != (self.password is None):
            raise ValueError("`username` and `password` go together: give both or none")
        if self.tls is not None and not all(url.startswith("https:") for url in self.urls):
            raise ValueError("`tls` is of https:// URLs; write https:// in `urls`, or leave it out")
        return self

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        return [endpoint_of_url(url) for url in self.urls]


@dataclass(frozen=True, slots=True)
class HttpxOptions:
    """The options of an httpx client; it follows no redirects and takes no proxies from the environment.

    Attributes:
        urls: of the nodes.
        auth: user and password; None: none.
        headers: with a token, if there is one.
        verify: how the registry's certificate is checked.
    """

    urls: tuple[str, ...]
    auth: httpx.BasicAuth | None = field(repr=False)
    headers: dict[str, str] = field(repr=False)
    verify: ssl.SSLContext | bool

    def client(self, timeout_s: float) -> httpx.Client:
        """Return a client; its user closes it."""
        return httpx.Client(
            auth=self.auth,
            headers={"Accept-Encoding": "identity", **self.headers},
            verify=self.verify,
            timeout=timeout_s,
            follow_redirects=False,
            trust_env=False,
        )


def httpx_options(definition: RegistryConnection, reader: SecretReader) -> HttpxOptions:
    """Return httpx's options for a connection. They hold secrets: make them where the client is made.

    Raises:
        SecretMissing: a reference has no target.
        CertificateUnreadable: a text is no PEM.
    """
    auth = None
    if definition.username is not None and definition.password is not None:
        auth = httpx.BasicAuth(definition.username, reader.text(definition.password))
    headers = {}
    if definition.token is not None:
        token = reader.text(definition.token)
        if not _HEADER_TEXT.fullmatch(token):
            raise SecretMissing("`token` has characters that no header can hold, such as a line break; give the token alone")
        headers["Authorization"] = f"Bearer {token}"
    verify = True if definition.tls is None else tls_context(definition.tls, reader)
    return HttpxOptions(tuple(definition.urls), auth, headers, verify)

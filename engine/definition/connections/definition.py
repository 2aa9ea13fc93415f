"""What definitions of all kinds of connections share: their frame, TLS, addresses in them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from engine.definition.connections.hosts import Endpoint
from engine.definition.connections.secret import PublicPem, Secret, SecretPem
from engine.expressions.limits import FewFields

_HOST: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,253}[A-Za-z0-9._])?|\[[0-9A-Fa-f:.]+\]")
_PORTS: Final = {"http": 80, "https": 443}


class Strict(FewFields):
    """A part of a connection. Faults never repeat what was given: it may be a secret in the wrong place."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


class Tls(Strict):
    """How the other side is known, and how it identifies this service."""

    ca: PublicPem | None = Field(
        default=None,
        description="Certificates that are trusted, as PEM, `env:NAME` or `file:PATH`; null: those of the system.",
        examples=["file:kafka/ca.pem"],
    )
    certificate: SecretPem | None = Field(
        default=None, description="The client's own certificate with its chain (mTLS).", examples=["file:kafka/client.pem"]
    )
    key: SecretPem | None = Field(default=None, description="Its private key.", examples=["file:kafka/client.key"])
    key_password: Secret | None = Field(
        default=None, description="Of an encrypted private key.", examples=["env:SLACKWATER_SECRET_CLIENT_KEY"]
    )
    verify_host: bool = Field(
        default=True,
        description="Whether the certificate must be of the host that is connected to. It is always checked otherwise.",
    )

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("`certificate` and `key` go together: give both or none")
        if self.key_password is not None and self.key is None:
            raise ValueError("`key_password` is of a `key`: give that as well, or leave it out")
        return self


class Connection(Strict):
    """A definition of any kind; its ``type`` says which."""

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """Where it connects to, one of which must answer."""
        raise NotImplementedError

    @property
    def further_endpoints(self) -> Sequence[Endpoint]:
        """Where it connects to besides, such as who issues its tokens."""
        return ()


def Matching(pattern: str, says: str) -> AfterValidator:  # noqa: N802 - stands where annotations do
    """Return the check that a text matches, with words of its own."""
    wanted = re.compile(pattern)

    def check(text: str) -> str:
        if not wanted.fullmatch(text):
            raise ValueError(says)
        return text

    return AfterValidator(check)


def endpoint_of(text: str) -> Endpoint:
    """Read ``host:port``.

    Raises:
        ValueError: it is none.
    """
    host, _, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not _HOST.fullmatch(host) or not port.isascii() or not port.isdigit() or not 1 <= int(port[:6]) <= 65_535:
        raise ValueError("is no host:port such as broker-1.example.com:9092 ([::1]:9092 for an IPv6 address)")
    return Endpoint(host.strip("[]"), int(port))


def endpoint_of_url(url: str) -> Endpoint:
    """Return where a checked URL leads."""
    parts = urlsplit(url)
    return Endpoint(parts.hostname or "", parts.port or _PORTS[parts.scheme])


def _check_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in _PORTS and parts.port != 0 and bool(_HOST.fullmatch(_host_part(parts.hostname or "")))
    except ValueError:
        is_good = False
    else:
        if "@" in parts.netloc:
            raise ValueError("has a user or a password in it, and URLs are shown; give them in their own fields")
        is_good = is_good and not (parts.query or parts.fragment or re.search(r"[\s\\]", url))
    if not is_good:
        raise ValueError("is no URL such as https://registry.example.com:8081 (http or https, without query and fragment)")
    return url.rstrip("/")


def _host_part(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _check_host(host: str) -> str:
    if not _HOST.fullmatch(_host_part(host.removeprefix("[").removesuffix("]"))):
        raise ValueError("is no name or address of a host, such as db.example.com")
    return host


Url = Annotated[str, Field(max_length=2_048), AfterValidator(_check_url)]
Host = Annotated[str, Field(max_length=255), AfterValidator(_check_host)]
User = Annotated[str, Matching(r"[^\x00]{1,512}", "has 1 to 512 characters, none of them U+0000")]


def refuse_both(**given: Any) -> None:
    """Refuse two kinds of credentials.

    Raises:
        ValueError: more than one is given.
    """
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise ValueError(f"{' and '.join(f'`{name}`' for name in named)} exclude each other: give one of them")

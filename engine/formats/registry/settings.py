"""The settings of a registry's client: address, credentials, time limits and size limits."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import httpx

from engine.connections.registry import RegistryConnection, httpx_options
from engine.connections.stored import Resolved
from engine.formats.port import FormatInvalid, SideName

STRATEGIES: Final = ("topic_name", "record_name", "topic_record_name")


@dataclass(frozen=True, slots=True)
class Tls:
    """How the registry and its client authenticate by certificates.

    Attributes:
        ca_file: trusted certificates, instead of the system's.
        certificate_file: the client's own, with its key in ``key_file``.
        key_password: of that key.
        is_verified: false accepts any certificate; for tests.
    """

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    is_verified: bool = True

    def context(self) -> ssl.SSLContext:
        """Return the context of connections.

        Raises:
            FormatInvalid: a file cannot be read.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate_file is not None:
                context.load_cert_chain(self.certificate_file, self.key_file, self.key_password)
        except (OSError, ssl.SSLError) as error:
            raise FormatInvalid(f"registry: its certificate files cannot be read: {error}") from error
        if not self.is_verified:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """A registry.

    Attributes:
        urls: of its nodes; if one gives no answer, the next is asked. Without user and password in them.
        user: with ``password``, basic authentication.
        token: bearer authentication.
        headers: sent with each request (an identity pool's, for instance).
        tls: see there.
        auth: signs requests, instead of user and password.
        context: how the registry's certificate is checked, instead of ``tls``.
        shown: removes secrets from foreign texts before errors show them.
        timeout_seconds: of one request.
        deadline_seconds: of one question, with all retries.
        max_schema_bytes: of one answer.
        max_references: of one schema, at every depth.
        max_depth: of references.
        max_cached_bytes: of cached schemas; the least recently used one is dropped first.
        unknown_seconds: how long an unknown number is not requested again.
        is_registering: the schema of results is registered if the subject lacks it; else it must exist.
    """

    urls: tuple[str, ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    tls: Tls = Tls()
    auth: httpx.Auth | None = field(default=None, repr=False)
    context: ssl.SSLContext | None = field(default=None, repr=False)
    shown: Callable[[str], str] = field(default=str, repr=False)
    timeout_seconds: float = 5.0
    deadline_seconds: float = 20.0
    max_schema_bytes: int = 1 << 20
    max_references: int = 64
    max_depth: int = 8
    max_cached_bytes: int = 64 << 20
    unknown_seconds: float = 30.0
    is_registering: bool = True

    def __post_init__(self) -> None:
        if not self.urls:
            raise FormatInvalid("registry: give the url of a schema registry")
        for url in self.urls:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise FormatInvalid(
                    f"registry: a url is http://host or https://host, not one of scheme {parts.scheme or 'none'!r}"
                )
            if parts.username is not None or parts.password is not None:
                raise FormatInvalid("registry: give user and password by themselves, not in the url, which is shown in errors")
            if parts.query or parts.fragment:
                raise FormatInvalid("registry: a url ends with its path; it has no query")
        if self.user is not None and self.token is not None:
            raise FormatInvalid("registry: give user and password, or a token, not both")


def subject_of(strategy: str, topic: str, side: SideName, record: str) -> str:
    """Return the subject for a side's schema.

    Args:
        strategy: one of ``STRATEGIES``.
        topic: the topic's name.
        side: keys or values.
        record: full name of the record or message; only the last two strategies use it.
    """
    match strategy:
        case "topic_name":
            return f"{topic}-{side}"
        case "record_name" if record:
            return record
        case "topic_record_name" if record:
            return f"{topic}-{record}"
        case "record_name" | "topic_record_name":
            raise FormatInvalid(f"subject strategy {strategy} needs the record's full name; give `schema` or `subject`")
    raise FormatInvalid(f"a subject strategy is {', '.join(STRATEGIES)}, not {strategy!r}")


def settings_of(resolved: Resolved, timeout_seconds: float, deadline_seconds: float) -> RegistrySettings:
    """Return the settings for the registry of a connection.

    Args:
        resolved: the connection, at the moment of its use.
        timeout_seconds: of one request.
        deadline_seconds: of one question.

    Raises:
        ConnectionOfAnotherType: it is not one to a registry.
        SecretMissing, CertificateUnreadable: see ``httpx_options``.
    """
    options = httpx_options(resolved.of_kind(RegistryConnection), resolved.reader)
    return RegistrySettings(
        options.urls,
        headers=tuple(options.headers.items()),
        auth=options.auth,
        context=None if isinstance(options.verify, bool) else options.verify,
        shown=resolved.reader.without_secrets,
        timeout_seconds=timeout_seconds,
        deadline_seconds=deadline_seconds,
    )

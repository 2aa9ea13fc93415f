"""The settings of a registry's client: time limits, size limits, and what its connection says."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import httpx

from engine.connections.registry import RegistryConnection, httpx_options
from engine.connections.stored import Resolved
from engine.formats.port import FormatInvalid, SideName

STRATEGIES: Final = ("topic_name", "record_name", "topic_record_name")


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """A registry.

    Attributes:
        urls: of its nodes, as a checked connection has them; if one gives no answer, the next is asked.
        headers: sent with each request.
        auth: signs requests.
        context: how the registry's certificate is checked; None: as the system does.
        shown: removes secrets from foreign texts before errors show them.
        timeout_seconds: of one request.
        deadline_seconds: of one question, with all retries.
        max_schema_bytes: of one answer.
        max_references: of one schema, at every depth.
        max_depth: of references.
        max_cached_bytes: of cached schemas; the least recently used one is dropped first.
        unknown_seconds: how long an unknown number is not requested again.
    """

    urls: tuple[str, ...]
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
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

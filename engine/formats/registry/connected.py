"""A registry's client for a stored connection: its secrets are read here, and removed from errors."""

from __future__ import annotations

from engine.connections.registry import RegistryConnection, httpx_options
from engine.connections.stored import Resolved
from engine.formats.registry.settings import RegistrySettings


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

"""Checking a connection: names, ports, TLS, credentials. Bounded in time; results contain no secret."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from engine.connections.attempts import Failed, Reason, attempt
from engine.connections.certificates import CertificateUnreadable
from engine.connections.keys import SecretUnreadable
from engine.connections.secret_sources import SecretMissing, SecretReader, SecretSources
from engine.connections.stored import Stored
from engine.definition.connections.hosts import Endpoint, HostRefused, addresses_of

MOST_S: Final = 5.0
"""Limit of a whole check: a user waits for it, and an unreachable host gives no answer at all."""

_CONNECT_S: Final = 2.0
"""Limit of one address, so that the next one is tried as well."""

_SHOWN_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a check.

    Attributes:
        reason: why it was not reached; None: it was.
        detail: what was reached, or what is wrong and what to do about it.
    """

    reason: Reason | None
    detail: str
    took_ms: int

    @property
    def outcome(self) -> Literal["reached", "not_reached"]:
        """The result in one word."""
        return "reached" if self.reason is None else "not_reached"


def check(
    stored: Stored, surroundings: SecretSources, most_s: float = MOST_S, now: Callable[[], float] = time.monotonic
) -> Outcome:
    """Check a stored connection.

    Name resolution may take longer than its limit, because the system decides how long; the caller still waits no longer.
    """
    began, reader = now(), SecretReader(surroundings)
    reason: Reason | None = None
    try:
        definition = stored.decrypted(surroundings.keys)
        for endpoint in (*definition.endpoints, *definition.further_endpoints):
            surroundings.hosts.check(endpoint.host)
        for endpoint in definition.further_endpoints:
            _reach([endpoint], surroundings, began + most_s, now)
        _reach(list(definition.endpoints), surroundings, began + most_s, now)
        outcome = attempt(definition, reader, max(0.5, began + most_s - now()))
    except HostRefused as error:
        reason, outcome = "host_not_allowed", str(error)
    except (SecretUnreadable, SecretMissing, CertificateUnreadable) as error:
        reason, outcome = "secret_unavailable", str(error)
    except Failed as error:
        reason, outcome = error.reason, str(error)
    # Secrets are removed before the text is cut: a cut secret would not be found.
    shown = " ".join(reader.without_secrets(outcome).split())[:_SHOWN_CHARS]
    return Outcome(reason, shown, round((now() - began) * 1000))


def _reach(endpoints: list[Endpoint], surroundings: SecretSources, end: float, now: Callable[[], float]) -> None:
    """Connect to one of several addresses, and close.

    Raises:
        HostRefused: a name resolves to an address that is not allowed.
        Failed: none answers.
    """
    failed: list[Failed] = []
    found: list[tuple[Endpoint, str]] = []
    for endpoint in endpoints:
        try:
            addresses = addresses_of(endpoint)
        except (OSError, UnicodeError):
            failed.append(
                Failed("name_not_resolved", f"the name {endpoint.host} is not known here; correct it, or the network's DNS")
            )
            continue
        # All are checked before any connection: the library that connects later may choose any.
        surroundings.hosts.check_addresses(endpoint.host, addresses)
        found += [(endpoint, address) for address in addresses]
        if now() >= end:
            raise Failed("timeout", "the names take too long to resolve")
    for endpoint, address in found:
        try:
            left_s = max(0.1, min(_CONNECT_S, end - now()))
            socket.create_connection((address, endpoint.port), left_s).close()
        except OSError as error:
            failed.append(_unreached(endpoint, error))
        else:
            return
        if now() >= end:
            break
    raise next((each for each in failed if each.reason != "name_not_resolved"), failed[0])


def _unreached(endpoint: Endpoint, error: OSError) -> Failed:
    if isinstance(error, ConnectionRefusedError):
        return Failed("refused", f"nothing listens at {endpoint}; correct the port, or start it")
    if isinstance(error, TimeoutError):
        return Failed("timeout", f"{endpoint} does not answer; it is away, or a firewall is between")
    return Failed("unreachable", f"{endpoint} cannot be reached: {error.strerror or type(error).__name__}")

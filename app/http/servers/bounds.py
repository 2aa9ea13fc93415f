"""Limits for every connection of every port."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Final

MIN_BODY_BYTES_PER_S: Final = 1_024
"""A telephone line of the nineties is five times as fast."""

FILES_BESIDE: Final = 1_024
"""Files and database connections of the process beside those of its clients."""


@dataclass(frozen=True, slots=True)
class ConnectionBounds:
    """Limits of the connections of one port.

    Attributes:
        timeout_s: limit for the head of a request, from its first byte or the start of the connection. A body must bring
            ``MIN_BODY_BYTES_PER_S`` in each such span, unless the service itself paused reading.
        connections: limit of open connections; further ones are answered 503 and closed.
    """

    timeout_s: float
    connections: int

    @property
    def fewest_bytes(self) -> float:
        """Bytes of a body required in each span."""
        return self.timeout_s * MIN_BODY_BYTES_PER_S


def raise_file_limit(connections: int) -> None:
    """Raise the process's limit of open files to one for each connection, up to its hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = connections + FILES_BESIDE
    if soft != resource.RLIM_INFINITY and soft < files:
        most = files if hard == resource.RLIM_INFINITY else min(files, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def connections_for(wanted: int, ports: int) -> int:
    """Return how many connections a port may have: ``wanted``, or its part of the files that the process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    return min(wanted, max(1, soft - min(FILES_BESIDE, soft // 2)) // ports)

"""What every connection of every port is held to."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Final

MIN_BODY_BYTES_PER_S: Final = 1_024
"""A telephone line of the nineties brings five times as much."""

FILES_BESIDE: Final = 1_024
"""Files and connections to the database that the process has open beside those of its clients."""


@dataclass(frozen=True, slots=True)
class ConnectionBounds:
    """Of the connections of one port.

    Attributes:
        timeout_s: within it the head of a request must be whole, from its first byte or the connection's begin on; of a body each
            such span must bring ``MIN_BODY_BYTES_PER_S``, unless it was the service that did not take more.
        connections: open at once; the next one is answered 503 and closed.
    """

    timeout_s: float
    connections: int

    @property
    def fewest_bytes(self) -> float:
        """What each span must bring of a body."""
        return self.timeout_s * MIN_BODY_BYTES_PER_S


def raise_file_limit(connections: int) -> None:
    """Let the process have a file for each connection, as far as its hard limit goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + FILES_BESIDE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def connections_for(wanted: int, ports: int) -> int:
    """Return how many connections a port may have: ``wanted``, or its part of the files that the process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    return min(wanted, max(1, soft - min(FILES_BESIDE, soft // 2)) // ports)

"""`python -m tests.bench.load`: GET requests over kept connections, in a process of its own that costs the server's cores little.

One thread, one selector, requests made beforehand, answers looked at for their status and length alone: about 15 µs of a core per request,
where an asynchronous HTTP client takes 300. Closed loop: each connection asks again as soon as it is answered, also after a 429.
"""

from __future__ import annotations

import json
import random
import selectors
import socket
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

RECEIVE_BYTES = 65_536
REQUESTS_MADE = 1_024
STALLED_SECONDS = 10.0
_LENGTH = b"content-length: "


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked.

    Attributes:
        paths: asked for in random order.
        seconds: after the seconds of warming up, which do not count.
    """

    port: int
    paths: tuple[str, ...]
    connections: int = 16
    seconds: float = 8.0
    warm_seconds: float = 2.0


@dataclass(frozen=True, slots=True)
class Answered:
    """What came of a load.

    Attributes:
        statuses: answers by status.
        p50_ms, p99_ms: of answers with 200; NaN without one.
        refused_p99_ms: of all others.
        longest_gap_ms: longest time without an answer of 200.
        all_answers: with those of the warming up.
    """

    seconds: float
    statuses: dict[str, int]
    p50_ms: float
    p99_ms: float
    refused_p99_ms: float
    longest_gap_ms: float
    all_answers: int

    @property
    def per_second(self) -> float:
        """Return the answers of 200 per second."""
        return self.statuses.get("200", 0) / self.seconds

    @property
    def refused_share(self) -> float:
        """Return the share of answers that were 429."""
        return self.statuses.get("429", 0) / max(1, sum(self.statuses.values()))


def put(load: Load) -> Answered:
    """Put the load on a server from a process of its own."""
    command = [sys.executable, "-m", "tests.bench.load"]
    done = subprocess.run(command, input=json.dumps(asdict(load)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the load generator ended with {done.returncode}:\n{done.stderr}")
    return Answered(**json.loads(done.stdout))


@dataclass(slots=True)
class _Connection:
    socket: socket.socket
    sent_at: float = 0.0
    received: bytearray = field(default_factory=bytearray)


def run(load: Load) -> Answered:
    """Ask and measure."""
    generator = random.Random(1)
    requests = [
        f"GET {generator.choice(load.paths)} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n\r\n".encode()
        for _ in range(REQUESTS_MADE)
    ]
    selector = selectors.DefaultSelector()
    for number in range(load.connections):
        opened = socket.create_connection(("127.0.0.1", load.port))
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(opened, selectors.EVENT_READ, _Connection(opened))
        _ask(selector.get_key(opened).data, requests[number])
    begin = time.perf_counter() + load.warm_seconds
    end, sent = begin + load.seconds, 0
    found: list[tuple[float, float, str]] = []
    while (now := time.perf_counter()) < end:
        ready = selector.select(STALLED_SECONDS)
        if not ready:
            raise TimeoutError(f"no answer for {STALLED_SECONDS} s")
        for key, _ in ready:
            connection: _Connection = key.data
            status = _receive(connection)
            if status is None:
                continue
            now = time.perf_counter()
            if connection.sent_at >= begin:
                found.append((now, now - connection.sent_at, status))
            sent += 1
            _ask(connection, requests[sent % REQUESTS_MADE])
    return _summary(begin, now, found, sent)


def _ask(connection: _Connection, request: bytes) -> None:
    connection.sent_at = time.perf_counter()
    connection.socket.sendall(request)


def _receive(connection: _Connection) -> str | None:
    """Take what has come; return the status once the answer is whole."""
    part = connection.socket.recv(RECEIVE_BYTES)
    if not part:
        raise ConnectionError("the server closed a kept connection")
    received = connection.received
    received += part
    head = received.find(b"\r\n\r\n")
    if head < 0:
        return None
    at = received.lower().find(_LENGTH, 0, head) + len(_LENGTH)
    if len(received) < head + 4 + int(received[at : received.index(b"\r\n", at)]):
        return None
    status = received[9:12].decode()
    received.clear()
    return status


def _summary(begin: float, end: float, found: list[tuple[float, float, str]], sent: int) -> Answered:
    good = sorted(seconds for _, seconds, status in found if status == "200")
    other = sorted(seconds for _, seconds, status in found if status != "200")
    moments = [begin, *(at for at, _, status in found if status == "200"), end]
    gap = max(later - earlier for earlier, later in pairwise(moments))
    statuses = dict(Counter(status for _, _, status in found))
    return Answered(
        seconds=end - begin,
        statuses=statuses,
        p50_ms=_percentile(good, 0.5),
        p99_ms=_percentile(good, 0.99),
        refused_p99_ms=_percentile(other, 0.99),
        longest_gap_ms=gap * 1e3,
        all_answers=sent,
    )


def _percentile(ordered: list[float], share: float) -> float:
    return ordered[int(share * (len(ordered) - 1))] * 1e3 if ordered else float("nan")


def main() -> None:
    """Read a load as JSON from standard input, write what came of it to standard output."""
    given: dict[str, Any] = json.load(sys.stdin)
    print(json.dumps(asdict(run(Load(**{**given, "paths": tuple(given["paths"])})))))


if __name__ == "__main__":
    main()

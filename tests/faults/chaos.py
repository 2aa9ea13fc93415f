"""kill -9 of one part after the other, at random moments, and how long it takes until everything that was acknowledged has been read."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from slackwater import Client

from tests.faults.service import Feeder, Service, until

RECOVERED_S = 600.0
"""Seven Spark services on two cores have taken 200 s; nothing shall fail for slowness alone."""

CALM_S = 6.0
"""A kill comes up to so long after everything ran again: in the midst of a batch, or between two."""

SECOND_KILL = 0.3
"""How often another kill follows before the first is recovered from."""

SETTINGS = {
    # Kill after kill must not make queries wait, or be given up: to whoever counts attempts they look like a query that cannot live.
    "SLACKWATER_DRIVER__BACKOFF_CAP_MS": "2000",
    "SLACKWATER_DRIVER__MAX_ATTEMPTS": "1000",
    "SLACKWATER_DRIVER__POLL_MS": "500",
}


_PARTS: dict[str, Callable[[Service], None]] = {
    "driver": Service.kill_driver,
    "jvm": Service.kill_jvm,
    "worker": Service.kill_workers,
    "api": Service.kill_api,
    "postgres": Service.kill_postgres,
    "backend": Service.kill_backend,
    "all": Service.kill_everything,
}
PARTS = list(_PARTS)


@dataclass(frozen=True, slots=True)
class Kill:
    """One line of the table.

    Attributes:
        at_s: since the first.
        recovered_s: until all queries had read what was acknowledged at the time of the (last) kill.
    """

    cycle: int
    what: str
    at_s: float
    recovered_s: float

    def __str__(self) -> str:
        return f"{self.cycle:>5}  {self.what:24}{self.at_s:>8.1f}{self.recovered_s:>12.1f}"


@dataclass(slots=True)
class Chaos:
    """Kills parts of a service that runs queries of ``audited`` while a feeder sends."""

    running: Service
    client: Client
    feeder: Feeder
    queries: Sequence[str]
    chance: random.Random
    kills: list[Kill] = field(default_factory=list)
    _begun: float = field(default_factory=time.monotonic)

    def cycle(self, part: str, second: str | None = None) -> None:
        """Kill a part at a random moment, perhaps a second one soon after, and wait until all is well again."""
        # The moment is what is random here; nothing waits for it.
        time.sleep(self.chance.uniform(0.2, CALM_S))
        at_s = time.monotonic() - self._begun
        begun, ends = self._kill(part)
        if second is not None:
            time.sleep(self.chance.uniform(0, CALM_S))
            begun, ends = self._kill(second)
        what = part if second is None else f"{part}, {second}"
        until(
            f"everything was read again after kill -9 of {what}", partial(has_read, self.client, self.queries, ends), RECOVERED_S
        )
        self.kills.append(Kill(len(self.kills) + 1, what, at_s, time.monotonic() - begun))
        print(self.kills[-1], flush=True)

    def _kill(self, part: str) -> tuple[float, dict[tuple[str, int], int]]:
        """Kill; returns when that was, and what had been acknowledged by then."""
        begun, ends = time.monotonic(), dict(self.feeder.ends)
        _PARTS[part](self.running)
        return begun, ends


def second_of(chance: random.Random) -> str | None:
    return chance.choice(PARTS) if chance.random() < SECOND_KILL else None


def has_read(client: Client, queries: Sequence[str], ends: Mapping[tuple[str, int], int]) -> bool:
    """Whether these queries run and have read up to these ends."""
    for name in queries:
        status = client.query(name).status()
        if status["state"] != "running":
            return False
        for feed in status["progress"]:
            for part in feed["partitions"]:
                if part["next_offset"] < max(ends.get((relation, part["partition"]), 0) for relation in feed["relations"]):
                    return False
    return True


HEADER = f"{'cycle':>5}  {'killed':24}{'after s':>8}{'recovered s':>12}"

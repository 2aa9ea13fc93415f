"""A service that is disturbed while a client sends to it, and audited when it is calm again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from slackwater import Client

from tests.faults.audited import Oracle, Script, register
from tests.faults.auditor import audit
from tests.faults.chaos import RECOVERED_S, SETTINGS, has_read
from tests.faults.service import Feeder, Service, seeded, service_of, until

QUERIES = ("joined", "regions", "sessions", "totals", "copies")


@dataclass(frozen=True, slots=True)
class Disturbed:
    """What a disturbance is given."""

    running: Service
    client: Client
    feeder: Feeder
    chance: random.Random
    queries: Sequence[str]

    def wait_until_read(self, what: str) -> float:
        """Wait until everything is read that is acknowledged by now; print and return how long that took."""
        begun, ends = time.monotonic(), dict(self.feeder.ends)
        until(f"everything was read after: {what}", partial(has_read, self.client, self.queries, ends), RECOVERED_S)
        took_s = time.monotonic() - begun
        print(f"{what}: all was read after {took_s:.1f} s; epochs {self.epochs()}", flush=True)
        return took_s

    def epochs(self) -> list[int]:
        return [self.client.query(name).status()["epoch"] for name in self.queries]


def is_audited_clean(
    disturb: Callable[[Disturbed], None],
    *,
    queries: Sequence[str] = QUERIES,
    settings: Mapping[str, str] | None = None,
    kind: type[Service] = Service,
) -> None:
    """Run a service, disturb it while it works, and compare everything it shows with the oracle."""
    seed = seeded()
    script = Script(random.Random(seed))
    with service_of(kind, {**SETTINGS, **(settings or {})}) as running, Client(running.url, timeout=60) as client:
        register(client, queries)
        feeder = Feeder(running.url, script.bodies(), pause_s=0.25)
        feeder.start()
        begun = {("orders", 0): 1, ("orders", 1): 1}
        until("every query has read something", partial(has_read, client, queries, begun), RECOVERED_S)
        disturb(Disturbed(running, client, feeder, random.Random(seed + 1), queries))
        script.is_over = True
        until("everything was acknowledged", lambda: feeder.is_done, RECOVERED_S)
        until("everything was read", partial(has_read, client, queries, feeder.ends), RECOVERED_S)
        oracle = Oracle(script)
        found = audit(client, oracle, queries)
        print(f"{len(oracle.orders)} orders, {feeder.repeated} requests repeated\n{found}")
        assert found.is_clean, str(found)

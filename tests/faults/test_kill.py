"""kill -9 of the driver, of the API, of everything, at random moments: nothing is lost and nothing counts twice."""

from __future__ import annotations

import random
import secrets
import time
from collections import Counter
from functools import partial

import pytest

from app.client import Client
from tests.faults.service import Feeder, Service, service, until
from tests.faults.workload import COPIES, COUNTS, STREAM, bodies, expected_counts, found_copies, found_counts, records

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.timeout(420)]

QUIET_S = 90.0


def runs_again(client: Client, above: dict[str, int]) -> bool:
    """Whether both queries run in a later launch than before."""
    statuses = [client.status(name) for name in ("counts", "copies")]
    return all(status["state"] == "running" and status["epoch"] > above[status["name"]] for status in statuses)


def kill_at_random(running: Service, client: Client, chance: random.Random) -> None:
    """Kill each part once, in any order, each time some moments after both queries ran again."""
    kills = [running.kill_driver, running.kill_api, running.kill_everything]
    chance.shuffle(kills)
    above = {"counts": 0, "copies": 0}
    for kill in kills:
        until("both queries run", partial(runs_again, client, above), QUIET_S)
        above = {name: client.status(name)["epoch"] for name in above}
        # The moment is what is random here; nothing waits for it.
        time.sleep(chance.uniform(0, 8))
        kill()
    until("both queries run after the last kill", partial(runs_again, client, above), QUIET_S)


def test_results_are_exact_after_kill_9_of_the_driver_the_api_and_everything() -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    sent = records(chance)
    with service() as running, Client(running.url, timeout=20) as client:
        client.register("streams", "events", STREAM)
        client.put_query(COUNTS)
        client.put_query(COPIES)
        feeder = Feeder(running.url, bodies(sent), pause_s=0.4)
        feeder.start()
        kill_at_random(running, client, chance)
        until("everything was acknowledged", lambda: feeder.is_done, QUIET_S)
        windows = expected_counts(sent)
        copies = Counter(record["id"] for record in sent if record["value"] % 2 == 0)
        until("every window is final", lambda: len(found_counts(client)) >= len(windows), QUIET_S)
        until("every copy is there", lambda: found_copies(client).total() >= copies.total(), QUIET_S)
        assert found_counts(client) == windows
        assert found_copies(client) == copies
        print(f"{feeder.repeated} appends repeated; epochs {[client.status(name)['epoch'] for name in ('counts', 'copies')]}")

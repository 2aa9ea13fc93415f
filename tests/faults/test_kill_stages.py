"""Queries of several stages while the driver, its JVM or a worker is killed: their results are those of an undisturbed run."""

from __future__ import annotations

import random
import secrets
import time
from functools import partial

import pytest
from slackwater import Client

from tests.faults.service import Feeder, Service, service, until
from tests.faults.stages import NAMES, QUERIES, SOURCES, body, found, requests, undisturbed

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(420)]

QUIET_S = 90.0


def epochs(client: Client) -> dict[str, int]:
    return {name: client.query(name).status()["epoch"] for name in NAMES}


def run_again(client: Client, above: dict[str, int], how_many: int) -> bool:
    """Whether all queries run, so many of them in a later launch than before."""
    statuses = [client.query(name).status() for name in NAMES]
    later = [status for status in statuses if status["epoch"] > above[status["name"]]]
    return all(status["state"] == "running" for status in statuses) and len(later) >= how_many


def is_read(client: Client) -> bool:
    """Whether every query has read everything, what the ones before it wrote included."""
    feeds = [feed for name in NAMES for feed in client.query(name).status()["progress"]]
    return not any(partition["lag"] for feed in feeds for partition in feed["partitions"])


def kill_at_random(running: Service, client: Client, chance: random.Random) -> None:
    """Kill every part once and some twice, in any order, each time some moments after all queries ran again."""
    kills = [running.kill_driver, running.kill_jvm, running.kill_workers]
    kills += chance.sample(kills, chance.randrange(3))
    chance.shuffle(kills)
    for kill in kills:
        above = epochs(client)
        # The moment is what is random here; nothing waits for it.
        time.sleep(chance.uniform(0, 6))
        begun = time.monotonic()
        if kill == running.kill_workers:
            until("a batch has lost its worker", partial(has_lost, running, client, above), QUIET_S)
        else:
            kill()
            until("all queries were launched again", partial(run_again, client, above, len(NAMES)), QUIET_S)
        until("all queries run", partial(run_again, client, above, 1), QUIET_S)
        print(f"{kill.__name__} at epochs {above}, back after {time.monotonic() - begun:.1f} s")


def has_lost(running: Service, client: Client, above: dict[str, int]) -> bool:
    """Kill the workers once more, idle ones are of no interest; return whether a query has failed of it."""
    running.kill_workers()
    return epochs(client) != above


def test_queries_of_several_stages_are_exact_whatever_is_killed() -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    sent = requests(chance)
    with service() as running, Client(running.url, timeout=20) as client:
        for name, (kind, definition) in SOURCES.items():
            client.relation(kind, name).register(definition)
        for query in QUERIES:
            client.queries.put(query)
        until("all queries run", partial(run_again, client, dict.fromkeys(NAMES, 0), len(NAMES)), QUIET_S)
        feeder = Feeder(running.url, [(SOURCES[name][0], name, body(records)) for name, records in sent], pause_s=0.15)
        feeder.start()
        kill_at_random(running, client, chance)
        expected = undisturbed(sent)
        until("everything was acknowledged", lambda: feeder.is_done, QUIET_S)
        until("everything was read", partial(is_read, client), QUIET_S)
        wrong = {name: sorted(rows ^ expected[name]) for name, rows in found(client).items() if rows != expected[name]}
        assert wrong == {}
        print(f"{len(sent)} requests, {feeder.repeated} repeated; epochs {epochs(client)}")

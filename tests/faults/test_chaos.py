"""kill -9 of driver, JVM, Python workers, API, Postgres, of all of them, at random moments: what the auditor finds wrong is nothing.

``FAULTS_CYCLES``, ``FAULTS_MINUTES`` and ``FAULTS_SEED`` say how many, for how long at most, and which; the seed is printed.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

import pytest
from slackwater import Client

from tests.faults.audited import QUERIES, Oracle, Script, register
from tests.faults.auditor import audit
from tests.faults.chaos import HEADER, PARTS, RECOVERED_S, SETTINGS, Chaos, has_read, second_of
from tests.faults.follower import Follower
from tests.faults.service import Feeder, seeded, service, until

pytestmark = [pytest.mark.faults, pytest.mark.spark]

CYCLES = int(os.environ.get("FAULTS_CYCLES", "50"))
LONGEST_S = 60 * float(os.environ.get("FAULTS_MINUTES", "40"))
FEW = ("regions", "totals", "copies")
"""What there is time for before each change lands: a re-keyed join with final windows, and what the followers follow."""

Kills = Iterator[tuple[str, str | None]]
"""What is killed in each cycle, and perhaps what before that was recovered from."""


def is_audited_clean(seed: int, queries: Sequence[str], kills: Kills) -> None:
    script = Script(random.Random(seed))
    with service(SETTINGS) as running, Client(running.url, timeout=30) as client:
        register(client, queries)
        feeder = Feeder(running.url, script.bodies(), pause_s=0.25)
        feeder.start()
        followers = rows, records = (
            Follower(running.url, "tables", "totals", "snapshot", seed),
            Follower(running.url, "streams", "copies", "earliest", seed + 1),
        )
        for follower in followers:
            follower.start()
        begun = {("orders", 0): 1, ("orders", 1): 1}
        until("every query has read something", partial(has_read, client, queries, begun), RECOVERED_S)
        chaos = Chaos(running, client, feeder, queries, random.Random(seed + 2))
        print(HEADER)
        for part, second in kills:
            chaos.cycle(part, second)
        script.is_over = True
        until("everything was acknowledged", lambda: feeder.is_done, RECOVERED_S)
        until("everything was read", partial(has_read, client, queries, feeder.ends), RECOVERED_S)
        oracle = Oracle(script)
        found = audit(client, oracle, queries)
        recovered = [kill.recovered_s for kill in chaos.kills]
        print(
            f"{len(recovered)} cycles, recovered after {statistics.median(recovered):.1f} s (median), {max(recovered):.1f} s (longest); "
            f"{len(oracle.orders)} orders, {feeder.repeated} requests repeated\n{found}"
        )
        assert found.is_clean, str(found)
        have_seen_all(rows, records, oracle)
        for follower in followers:
            follower.close()


def have_seen_all(rows: Follower, records: Follower, oracle: Oracle) -> None:
    copies = oracle.copies()
    until("the follower of the stream has seen all", lambda: len(records.changes()) >= len(copies), RECOVERED_S)
    assert Counter(change["row"]["id"] for change in records.changes()) == Counter(copies)
    totals = oracle.totals()
    until("the follower of the table has seen all", lambda: folded(rows) == totals, RECOVERED_S)
    numbers = [change["sequence"] for change in rows.changes()]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def folded(follower: Follower) -> dict[str, tuple[int, int]]:
    return {row["key"]: (row["n"], row["total"]) for row in follower.rows()}


@pytest.mark.timeout(1_800)
def test_nothing_is_lost_or_repeated_when_a_part_of_each_kind_is_killed() -> None:
    seed = seeded()
    chance = random.Random(seed)
    parts = [chance.choice(("driver", "jvm", "worker")), chance.choice(("api", "postgres", "backend")), "all"]
    chance.shuffle(parts)
    is_audited_clean(seed, FEW, iter([(part, None) for part in parts]))


@pytest.mark.slow
@pytest.mark.timeout(LONGEST_S + 1_200)
def test_nothing_is_lost_or_repeated_whatever_is_killed_for_fifty_cycles() -> None:
    seed = seeded()
    is_audited_clean(seed, list(QUERIES), many(random.Random(seed)))


def many(chance: random.Random) -> Kills:
    """Kill every part equally often, in any order, and stop when the time is over."""
    begun, waiting = time.monotonic(), list[str]()
    for _ in range(CYCLES):
        if time.monotonic() - begun > LONGEST_S:
            return
        waiting = waiting or chance.sample(PARTS, len(PARTS))
        yield waiting.pop(), second_of(chance)

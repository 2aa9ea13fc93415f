"""kill -9 at random moments while forty queries share one driver, some of them heavy and one poisonous: the poisonous one alone is failed.

Innocent queries spend no attempt on it, nor on a driver that dies, at no time: one that is spent heals, so what counts is their events and
not what their status says in the end. They back off for two things that the test does to them. It kills the database, which any query may
meet. And it kills workers: who rides alone in one, as heavy queries do and suspects on trial, cannot be told from one that kills its worker,
so it may pay once for each such kill. Killed every few seconds, no query lives long enough to be healthy again; so that these attempts give
nobody up, the service has its small budget before and behind the kills, and a large one meanwhile. The poisonous query goes on dying through
all of them.

``FAULTS_CYCLES``, ``FAULTS_MINUTES`` and ``FAULTS_SEED`` are those of ``test_chaos.py``.
"""

from __future__ import annotations

import random
import statistics
from collections import Counter
from functools import partial

import pytest
from slackwater import Client

from tests.faults.audited import Oracle, Script, register
from tests.faults.auditor import audit
from tests.faults.chaos import HEADER, RECOVERED_S, Chaos, has_read
from tests.faults.crowd import HEAVY, LIGHT, POISONOUS, WORKER_MEMORY, Bulk, bodies, poison, register_others
from tests.faults.service import Feeder, seeded, service, until
from tests.faults.test_chaos import LONGEST_S, many

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(LONGEST_S + 1_200)]

DATABASE_AWAY = {"sink_unavailable", "source_unavailable"}
WORKER_KILLED = {"worker_lost", "worker_crashed"}

FEW_ATTEMPTS, MANY_ATTEMPTS = ({"SLACKWATER_DRIVER__MAX_ATTEMPTS": most} for most in ("4", "1000"))
SETTINGS = {
    "SLACKWATER_DRIVER__BACKOFF_CAP_MS": "5000",
    "SLACKWATER_DRIVER__MAX_QUERIES": "60",
    "SLACKWATER_SPARK__WORKER_MEMORY": WORKER_MEMORY,
}


def test_forty_queries_lose_nothing_and_only_the_poisonous_one_is_failed() -> None:
    seed = seeded()
    script, bulk, innocent = Script(random.Random(seed)), Bulk(), [*LIGHT, *HEAVY]
    with service(SETTINGS | FEW_ATTEMPTS) as running, Client(running.url, timeout=60) as client:
        register(client, LIGHT)
        register_others(client)
        feeder = Feeder(running.url, bodies(script, bulk), pause_s=0.25)
        feeder.start()
        begun = {(relation, partition): 1 for relation in ("orders", "bulk") for partition in (0, 1)}
        until("every query has read something", partial(has_read, client, innocent, begun), RECOVERED_S)
        for kind, name, records in poison():
            client.relation(kind, name).append(records)
        until("the poisonous query is failed", lambda: client.query(POISONOUS).status()["state"] == "failed", RECOVERED_S)
        assert "worker_out_of_memory" in client.query(POISONOUS).status()["error"]["detail"]
        running.start_anew(MANY_ATTEMPTS)
        client.call("POST", f"/v1/queries/{POISONOUS}/restart")
        until("the heavy queries ride in slots of their own", lambda: are_alone(client), RECOVERED_S)
        chaos = Chaos(running, client, feeder, innocent, random.Random(seed + 2))
        print(HEADER)
        for part, second in many(random.Random(seed)):
            chaos.cycle(part, second)
        until("the heavy queries ride in slots of their own again", lambda: are_alone(client), RECOVERED_S)
        script.is_over = True
        until("everything was acknowledged", lambda: feeder.is_done, RECOVERED_S)
        until("everything was read", partial(has_read, client, innocent, feeder.ends), RECOVERED_S)
        recovered = [kill.recovered_s for kill in chaos.kills]
        print(
            f"{len(recovered)} cycles, recovered after {statistics.median(recovered):.1f} s (median), {max(recovered):.1f} s (longest)"
        )
        oracle = Oracle(script)
        found = audit(client, oracle, LIGHT)
        print(f"{len(oracle.orders)} orders, {bulk.made} records of heavy queries, {feeder.repeated} requests repeated\n{found}")
        assert found.is_clean, str(found)
        for name in HEAVY:
            assert totals(client, name) == bulk.totals, name
        running.start_anew(FEW_ATTEMPTS)
        until("the poisonous query is failed again", lambda: client.query(POISONOUS).status()["state"] == "failed", RECOVERED_S)
        spent = {name: spent_on(client, name) for name in innocent}
        print("attempts that innocent queries spent, by their reasons:", dict(sum(spent.values(), Counter())))
        assert {name: codes for name, found in spent.items() if (codes := set(found) - DATABASE_AWAY - WORKER_KILLED)} == {}
        workers_killed = sum(kill.what.split(", ").count("worker") for kill in chaos.kills)
        assert {name: found for name, found in spent.items() if sum(found[code] for code in WORKER_KILLED) > workers_killed} == {}
        assert [name for name in innocent if given_up(client, name)] == []


def totals(client: Client, name: str) -> dict[str, tuple[int, int]]:
    return {row["k"]: (row["n"], row["total"]) for row in client.table(name).each_row()}


def are_alone(client: Client) -> bool:
    """Whether each heavy query has committed its newest batch in a slot of its own."""
    executions = [client.query(name).status()["execution"] for name in HEAVY]
    return all(execution is not None and execution["mode"] == "dedicated" for execution in executions)


def spent_on(client: Client, name: str) -> Counter[str]:
    """Count the attempts that a query has spent, by the codes of their reasons. A loss that is only noted (rule 23) spends none."""
    found: Counter[str] = Counter()
    code = ""
    for event in client.query(name).events():
        detail = event.detail or {}
        code = detail["error"]["code"] if "error" in detail else code
        if event.to_state in ("backoff", "failed") and detail.get("attempt"):
            found[code] += 1
    return found


def given_up(client: Client, name: str) -> list[str]:
    """Return the reasons for which a query was failed for good."""
    return [str(event.detail) for event in client.query(name).events() if event.to_state == "failed"]

"""Two real drivers on one service: they share the load, one takes over from the other, and one that wakes up late harms nothing."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise

import psycopg
import pytest
from slackwater import Client, Json

from tests.faults.service import Feeder, SecondDriver, Service, second_driver, service, until
from tests.faults.workload import COPIES, COUNTS, STREAM, bodies, expected_counts, found_copies, found_counts, records

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(420)]

LEASE_S = 6.0
SETTINGS = {
    "SLACKWATER_DRIVER__LEASE_TTL_MS": str(round(LEASE_S * 1000)),
    "SLACKWATER_DRIVER__HEARTBEAT_MS": "1000",
    "SLACKWATER_DRIVER__REBALANCE_AFTER_MS": "5000",
    "SLACKWATER_SPARK__DRIVER_MEMORY": "1g",
}
SOON_S = 2 * LEASE_S
"""A lease that was just renewed runs out, and the other driver's loop comes round on a busy machine."""

QUIET_S = 90.0
TABLES = ["counts", "counts_2", "counts_3"]
QUERIES = [*TABLES, "copies"]


def begin(running: Service, client: Client, chance: random.Random) -> tuple[Feeder, list[Json]]:
    """Register everything and begin to send."""
    sent = records(chance)
    client.stream("events").register(STREAM)
    for name in TABLES:
        client.queries.put({**COUNTS, "name": name, "into": {"table": name}})
    client.queries.put(COPIES)
    feeder = Feeder(running.url, bodies(sent), pause_s=0.3)
    feeder.start()
    return feeder, sent


def run_of(client: Client, query: str) -> Json:
    run: Json = client.call("GET", f"/v1/queries/{query}/runs", params={"limit": 1})["items"][0]
    return run


def held_by(client: Client, driver: SecondDriver) -> list[str]:
    """Return the queries that a driver runs."""
    statuses = {name: client.query(name).status() for name in QUERIES}
    runs = {name: run_of(client, name) for name in QUERIES if statuses[name]["state"] == "running"}
    return [name for name, run in runs.items() if run["driver_id"] == str(driver.id) and run["epoch"] == statuses[name]["epoch"]]


def run_elsewhere(client: Client, queries: Iterable[str], driver: SecondDriver) -> bool:
    held = held_by(client, driver)
    return all(client.query(name).status()["state"] == "running" and name not in held for name in queries)


def shared(client: Client, driver: SecondDriver) -> list[str]:
    """Return the driver's queries once it has half of them and all run."""
    held = held_by(client, driver)
    return (
        held
        if len(held) == len(QUERIES) // 2 and all(client.query(name).status()["state"] == "running" for name in QUERIES)
        else []
    )


def has_windows(client: Client, table: str, number: int) -> bool:
    return len(found_counts(client, table)) >= number


def assert_exact(client: Client, feeder: Feeder, sent: list[Json]) -> None:
    until("everything was acknowledged", lambda: feeder.is_done, QUIET_S)
    windows = expected_counts(sent)
    copies = [record["id"] for record in sent if record["value"] % 2 == 0]
    for table in TABLES:
        until(f"every window of {table} is final", partial(has_windows, client, table, len(windows)), QUIET_S)
        assert found_counts(client, table) == windows
    until("every copy is there", lambda: found_copies(client).total() >= len(copies), QUIET_S)
    assert found_copies(client) == dict.fromkeys(copies, 1)


def assert_one_story(client: Client) -> None:
    """What the queries' events tell follows from one another, and epochs only rise: no driver wrote behind another's back."""
    for name in QUERIES:
        page = client.call("GET", f"/v1/queries/{name}/events", params={"limit": 1000})
        events = [event for event in page["items"] if event["to_state"] is not None]
        epochs = [event["epoch"] for event in events]
        assert epochs == sorted(epochs), events
        for before, after in pairwise(events):
            assert before["to_state"] == after["from_state"], events


def restart_all(client: Client) -> None:
    epochs = {name: client.query(name).status()["epoch"] for name in QUERIES}
    for name in QUERIES:
        client.call("POST", f"/v1/queries/{name}/restart")
    until("everything was restarted", partial(restarted, client, epochs), QUIET_S)


def restarted(client: Client, epochs: dict[str, int]) -> bool:
    statuses = [client.query(name).status() for name in QUERIES]
    return all(status["state"] == "running" and status["epoch"] > epochs[status["name"]] for status in statuses)


def in_a_commit(control: psycopg.Connection, queries: set[str]) -> bool:
    """Whether the sink of one of these queries, whose process is frozen, holds a transaction open."""
    rows = control.execute(
        """
        SELECT q.name FROM pg_stat_activity a JOIN slackwater.query q
        ON a.application_name LIKE 'slackwater-sink ' || replace(q.id::text, '-', '') || ' %'
        WHERE a.state = 'idle in transaction'
        """
    )
    return not queries.isdisjoint(row[0] for row in rows)


def test_a_driver_that_is_killed_with_its_session_is_followed_within_the_lease() -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with service(SETTINGS) as running, Client(running.url, timeout=20) as client, second_driver(running) as second:
        feeder, sent = begin(running, client, chance)
        held = until("the load is shared", lambda: shared(client, second), QUIET_S)
        # The moment is what is random here; nothing waits for it.
        time.sleep(chance.uniform(0, 5))
        killed_at = datetime.now(UTC)
        second.kill()
        until("the other driver runs everything", lambda: run_elsewhere(client, held, second), QUIET_S)
        waited = [(datetime.fromisoformat(run_of(client, name)["started_at"]) - killed_at).total_seconds() for name in held]
        ran = [(datetime.fromisoformat(run_of(client, name)["running_at"]) - killed_at).total_seconds() for name in held]
        print(f"{held} taken over after {waited} s, running after {ran} s")
        assert max(waited) < SOON_S
        assert_exact(client, feeder, sent)
        assert_one_story(client)


def test_a_frozen_driver_that_wakes_up_commits_nothing_and_harms_nothing() -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with service(SETTINGS) as running, Client(running.url, timeout=20) as client, second_driver(running) as second:
        feeder, sent = begin(running, client, chance)
        held = until("the load is shared", lambda: shared(client, second), QUIET_S)
        with psycopg.connect(second.dsn, autocommit=True) as control:
            is_in_commit = second.freeze(lambda: in_a_commit(control, set(held)), 20)
        frozen_at = time.monotonic()
        until("the other driver runs everything", lambda: run_elsewhere(client, held, second), QUIET_S)
        print(f"frozen in a commit: {is_in_commit}; {held} run elsewhere after {time.monotonic() - frozen_at:.1f} s")
        second.wake()
        until("it has noticed", lambda: second.log().count("lease_lost") >= len(held), QUIET_S)
        until("it has its share again", lambda: shared(client, second), QUIET_S)
        restart_all(client)
        assert_exact(client, feeder, sent)
        assert_one_story(client)
        runs = [path.name.rpartition("-")[0] for path in running.data_dir.glob("checkpoints/*/*/run-*")]
        assert sorted(runs) == sorted(f"run-{client.query(name).status()['epoch']:010d}" for name in QUERIES)

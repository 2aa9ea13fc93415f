"""From topics to topics by a whole service, of which, or of the broker, a part is killed at random moments again and again.

``KAFKA_CYCLES`` says how often, ``FAULTS_SEED`` which and when; the seed is printed. Nobody waits for quiet between two kills: some come
during the recovery from another.
"""

from __future__ import annotations

import os
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import pytest
from slackwater import Client

from tests.faults.chaos import SETTINGS
from tests.faults.service import Service, seeded, service, until
from tests.kafka.audited_topics import (
    QUERIES,
    Put,
    TopicFeeder,
    counted,
    counted_by,
    expected,
    in_log_of_stream,
    in_log_of_table,
    in_one_process,
    in_topic,
    is_folded,
    register,
)
from tests.kafka.broker import Broker
from tests.kafka.test_delivering import PATIENT
from tests.kafka.test_delivery import taken
from tests.kafka.topics import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]

CYCLES = int(os.environ.get("KAFKA_CYCLES", "20"))
CALM_S = 3.0
"""A kill comes up to so long after results went on, in the midst of a batch, a transaction, or between two."""

PATIENCE_S = 10.0
"""For up to so long results may take to go on; then the next kill comes all the same, but for every ``AWAITED_EVERY``-th cycle: there they must
go on, or all kills might come before anything was done."""

AWAITED_EVERY = 4

AWAY_S = 60.0
SOON_S, LATER_S = 120.0, 400.0


def parts_of(running: Service, broker: Broker, chance: random.Random) -> dict[str, Callable[[], None]]:
    def kill_broker() -> None:
        broker.kill()
        time.sleep(chance.uniform(0, 2))
        broker.start()

    return {
        "api": running.kill_api,
        "driver": running.kill_driver,
        "delivering": running.kill_delivering,
        "worker": running.kill_workers,
        "jvm": running.kill_jvm,
        "all": running.kill_everything,
        "broker": kill_broker,
    }


def in_turn(parts: Mapping[str, object], chance: random.Random) -> Iterator[str]:
    """Yield every part equally often, in any order."""
    waiting: list[str] = []
    while True:
        waiting = waiting or chance.sample([*parts], len(parts))
        yield waiting.pop()


def delivered(client: Client) -> dict[str, int]:
    """Return how many rows of each result are delivered."""
    return {name: int(status_of(client, name)["delivery"]["position"]) for name in QUERIES}


def status_of(client: Client, name: str) -> Mapping[str, dict[str, int]]:
    return until("the status is there", lambda: client.query(name).status().raw, SOON_S)


def kill_in_turn(client: Client, parts: Mapping[str, Callable[[], None]], chance: random.Random) -> None:
    begun, went_on = time.monotonic(), 0
    print(f"{'cycle':>5} {'killed':10} {'after s':>8} {'delivered before':36} went on within")
    for cycle, part in zip(range(1, CYCLES + 1), in_turn(parts, chance), strict=False):
        time.sleep(chance.uniform(0, CALM_S))  # the moment is what is random here; nothing waits for it
        before, at_s = delivered(client), time.monotonic() - begun
        parts[part]()
        killed_at, patience_s = time.monotonic(), chance.uniform(1, PATIENCE_S)
        if cycle % AWAITED_EVERY == 0:
            goes_on = until(f"results go on after {part}", partial(is_behind, client, before), LATER_S)
        else:
            goes_on = goes_on_within(client, before, patience_s)
        went_on += goes_on
        took = f"{time.monotonic() - killed_at:.1f} s" if goes_on else "not in time"
        print(f"{cycle:>5} {part:10} {at_s:>8.1f} {before!s:36} {took}", flush=True)
    print(
        f"{CYCLES} kills in {time.monotonic() - begun:.0f} s; in {went_on} cycles results went on before the next one", flush=True
    )


def goes_on_within(client: Client, before: Mapping[str, int], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not (goes_on := is_behind(client, before)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return goes_on


def is_behind(client: Client, before: Mapping[str, int]) -> bool:
    """Whether more of each result is delivered."""
    return all(rows > before[name] for name, rows in delivered(client).items())


def is_settled(client: Client, name: str, records: int) -> bool:
    """Whether a query has read so many records, and its results are delivered."""
    status = client.query(name).status()
    assert status["state"] != "failed", status
    assert status["delivery"]["state"] != "stopped", status
    return bool(status["read_rows"] >= records and status["delivery"]["lag_rows"] == 0 and status["error"] is None)


def test_each_result_is_in_its_topic_once_and_in_order_whatever_is_killed(own_broker: Broker) -> None:
    seed = seeded()
    chance = random.Random(seed)
    cluster = Cluster(own_broker.bootstrap)
    with service(SETTINGS | PATIENT) as running, Client(running.url, timeout=30) as client:
        register(client, cluster)
        feeder = TopicFeeder(own_broker.bootstrap, random.Random(seed + 1))
        feeder.start()
        until("something of both is delivered", lambda: all(delivered(client).values()), LATER_S)
        kill_in_turn(client, parts_of(running, own_broker, chance), chance)
        feeder.is_over = True
        until("the topics have everything", lambda: feeder.is_done, SOON_S)
        audit(client, cluster, feeder)


def audit(client: Client, cluster: Cluster, feeder: TopicFeeder) -> None:
    """Compare the topics and the service's log with what one process makes of the sources, when everything is read and delivered."""
    assert feeder.failed == []
    orders, prices = (found_as_sent(cluster, topic, feeder.sent) for topic in ("orders", "prices"))
    bench = in_one_process(feeder.sent)
    for name, records in {"priced": orders + prices, "totals": orders}.items():
        until(f"{name} is read and delivered", partial(is_settled, client, name, records), LATER_S)
        assert client.query(name).status()["read_rows"] == records
        assert counted_by(client, name) == counted(bench, name)
    wanted = {name: expected(bench, name) for name in QUERIES}
    logs = {"priced": in_log_of_stream(client), "totals": in_log_of_table(client)}
    print(f"{orders} orders, {prices} prices")
    for name, log in logs.items():
        rows = sum(map(len, log.values()))
        print(f"{name}: {rows} results in the log; {sum(map(len, wanted[name].values()))} changes by one process", flush=True)
        assert in_topic(name, taken(cluster, name, rows, 120)) == log
    assert logs["priced"] == wanted["priced"]
    assert {*logs["totals"]} == {*wanted["totals"]}
    assert [item for item, changes in logs["totals"].items() if not is_folded(changes, wanted["totals"][item])] == []
    assert any(None in changes for changes in logs["totals"].values())


def found_as_sent(cluster: Cluster, topic: str, sent: Iterable[Put]) -> int:
    """Check that a source has what was sent, which is the test's own part; returns how many records."""
    puts = [(each.item, each.value) for each in sent if each.topic == topic]
    found = [((each.key() or b"").decode(), each.value()) for each in taken(cluster, topic, len(puts), 120)]
    assert by_item(found) == by_item(puts)
    return len(puts)


def by_item(records: Iterable[tuple[str, bytes | None]]) -> dict[str, list[bytes | None]]:
    found = defaultdict[str, list[bytes | None]](list)
    for item, value in records:
        found[item].append(value)
    return found


def test_the_status_tells_of_a_broker_that_is_away_for_a_minute_and_nothing_is_lost(own_broker: Broker) -> None:
    cluster = Cluster(own_broker.bootstrap)
    with service(PATIENT) as running, Client(running.url, timeout=30) as client:
        register(client, cluster)
        feeder = TopicFeeder(own_broker.bootstrap, random.Random(seeded()))
        feeder.start()
        until("something of both is delivered", lambda: all(delivered(client).values()), LATER_S)
        own_broker.kill()
        back_at = time.monotonic() + AWAY_S
        for name in QUERIES:
            until(f"{name} tells that its source is away", partial(is_away, client, name), AWAY_S)
        time.sleep(max(0.0, back_at - time.monotonic()))  # the length of the outage is what is tested
        assert [name for name in QUERIES if not is_away(client, name)] == []
        own_broker.start()
        feeder.is_over = True
        until("the topics have everything", lambda: feeder.is_done, SOON_S)
        audit(client, cluster, feeder)
        assert {name: client.query(name).status()["state"] for name in QUERIES} == dict.fromkeys(QUERIES, "running")


def is_away(client: Client, name: str) -> bool:
    status = client.query(name).status()
    assert status["state"] != "failed", status
    error = status["error"]
    return error is not None and error["code"] == "source_unavailable" and "broker" in error["detail"]

"""Two drivers on one database: a query is never run by both, and what one loses the other takes over."""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
import pytest

from app.catalog.drivers import sql as drivers
from app.catalog.drivers import transitions
from app.catalog.drivers.lifecycle import Action
from app.catalog.drivers.states import State
from app.catalog.drivers.transitions import Claimant
from app.catalog.stored.state_files import ROOT_FILE
from app.driver.leases import Leases
from app.driver.state_root import StateRoot
from tests.integration.driver_tools import Control, driver, fast_settings, stays, until

ROOT = StateRoot(Path(), uuid4())


@pytest.fixture
def control(dsn: str) -> Iterator[Control]:
    control = Control(dsn)
    yield control
    control.close()


def owners(control: Control, queries: list[UUID]) -> set[UUID | None]:
    return {control.status(query)["lease_owner"] for query in queries}


def assert_fenced(control: Control, query: UUID) -> None:
    """No launch ever commits behind a newer one."""
    epochs = [row["epoch"] for row in control.commits(query)]
    assert epochs == sorted(epochs)


def test_one_claim_never_gives_a_query_to_two_drivers(dsn: str, control: Control) -> None:
    queries = {control.add() for _ in range(60)}
    claimed: list[list[UUID]] = []
    barrier = threading.Barrier(6)

    def claims() -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            barrier.wait()
            claimed.append(transitions.claim(connection, Claimant(uuid4(), 60_000, ROOT.id), limit=60))

    threads = [threading.Thread(target=claims) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # SKIP LOCKED: a claim that found a row locked leaves it to the one that holds it.
    assert sorted(itertools.chain(*claimed)) == sorted(queries)


def test_a_lease_of_a_driver_that_is_gone_is_free_when_the_databases_clock_was_set_back(dsn: str, control: Control) -> None:
    query = control.add()
    with psycopg.connect(dsn, autocommit=True) as connection:
        assert transitions.claim(connection, Claimant(uuid4(), 15_000, ROOT.id), limit=1) == [query]
        assert transitions.claim(connection, Claimant(uuid4(), 15_000, ROOT.id), limit=1) == []
        connection.execute("UPDATE slackwater.query_status SET lease_expires_at = lease_expires_at + interval '1 hour'")
        assert transitions.claim(connection, Claimant(uuid4(), 15_000, ROOT.id), limit=1) == [query]
        assert transitions.claim(connection, Claimant(uuid4(), 15_000, ROOT.id), limit=1) == []


def test_a_transition_on_a_row_that_changed_writes_nothing_not_even_history(dsn: str, control: Control) -> None:
    query, me = control.add(), uuid4()
    with psycopg.connect(dsn, autocommit=True) as connection:
        leases = Leases(me, 60_000, ROOT)
        drivers.beat(connection, me, "ready", {"state_root": str(ROOT.id), "max_queries": 60}, ("here", 1, 0.0))
        leases.claim(connection)
        (leased,) = leases.leased_queries(connection)
        control.execute("UPDATE slackwater.query_status SET version = version + 1 WHERE query_id = %s", query)
        to = replace(leased.status, state=State.STARTING, epoch=1)
        assert leases.save(connection, leased, Action("2", to)) is None
    assert (control.state(query), control.events(query), control.runs(query)) == ("stopped", [], [])


def test_a_lease_is_not_trusted_longer_than_it_lives_without_a_renewal(dsn: str) -> None:
    now = 100.0
    leases = Leases(uuid4(), 2_000, ROOT, clock=lambda: now)
    assert not leases.is_trusted
    with psycopg.connect(dsn, autocommit=True) as connection:
        leases.renew(connection)
    now = 101.9
    assert leases.is_trusted
    now = 102.0
    assert not leases.is_trusted


def test_after_kill_9_another_driver_takes_the_queries_over(dsn: str, tmp_path: Path, control: Control) -> None:
    queries = [control.add() for _ in range(3)]
    with driver(dsn, fast_settings(tmp_path)) as first:
        for query in queries:
            control.reaches(query, "running")
            control.works(query)
        with driver(dsn, fast_settings(tmp_path)) as second:
            assert owners(control, queries) == {first.id}
            first.kill()
            for query in queries:
                status = control.reaches(query, "running", epoch=2)
                control.works(query, epoch=2)
                assert (status["lease_owner"], status["attempt"]) == (second.id, 0)
                assert control.runs(query)[0]["error"]["code"] == "driver_lost"
                assert_fenced(control, query)


def test_a_driver_that_sleeps_through_its_leases_finds_itself_fenced_and_stops_its_queries(
    dsn: str, tmp_path: Path, control: Control
) -> None:
    queries = [control.add() for _ in range(2)]
    with driver(dsn, fast_settings(tmp_path)) as first:
        for query in queries:
            control.reaches(query, "running")
            control.works(query)
        os.kill(first.process.pid, signal.SIGSTOP)
        # A launch waits for seconds where the first one was stopped in the midst of a commit.
        with driver(dsn, fast_settings(tmp_path, start_timeout_ms=60_000)) as second:
            for query in queries:
                control.reaches(query, "running", epoch=2)
                control.works(query, epoch=2)
            os.kill(first.process.pid, signal.SIGCONT)
            until("the first driver notices", lambda: b"lease_lost" in first.log.read_bytes())
            for query in queries:
                control.works(query, epoch=2)
                assert control.status(query)["epoch"] == 2
                assert_fenced(control, query)
            assert owners(control, queries) == {second.id}
            assert first.process.poll() is None, "it goes on, ready for other queries"


def test_a_lease_that_was_taken_away_stops_the_query(dsn: str, tmp_path: Path, control: Control) -> None:
    query, stranger = control.add(), uuid4()
    with driver(dsn, fast_settings(tmp_path)) as process:
        control.reaches(query, "running")
        control.works(query)
        control.execute(
            "UPDATE slackwater.query_status SET lease_owner = %s, lease_expires_at = now() + interval '5 min',"
            " version = version + 1 WHERE query_id = %s",
            stranger,
            query,
        )  # fmt: skip
        until("it notices", lambda: b"lease_lost" in process.log.read_bytes())

        def rests() -> bool:
            seen = len(control.commits(query))
            return not until_next_commit(control, query, seen)

        until("nothing commits any more", rests)
        status = control.status(query)
        assert (status["state"], status["lease_owner"], status["epoch"]) == ("running", stranger, 1)


def until_next_commit(control: Control, query: UUID, seen: int) -> bool:
    """Whether another commit comes within ten times the stub's interval."""
    try:
        return bool(until("a commit", lambda: len(control.commits(query)) > seen, 0.3))
    except AssertionError:
        return False


def test_a_handover_by_sigterm_moves_every_query_and_spends_no_attempt(dsn: str, tmp_path: Path, control: Control) -> None:
    queries = [control.add() for _ in range(3)]
    with driver(dsn, fast_settings(tmp_path)) as first:
        for query in queries:
            control.reaches(query, "running")
        with driver(dsn, fast_settings(tmp_path)) as second:
            until("the second is ready", lambda: len([row for row in control.drivers() if row["phase"] == "ready"]) == 2)
            assert first.terminate() == 0
            for query in queries:
                status = control.reaches(query, "running", epoch=2)
                assert (status["lease_owner"], status["attempt"]) == (second.id, 0)
                control.works(query, epoch=2)
                assert_fenced(control, query)


def test_two_drivers_share_the_load_and_one_that_comes_later_is_handed_its_share(
    dsn: str, tmp_path: Path, control: Control
) -> None:
    queries = [control.add() for _ in range(5)]
    settings = fast_settings(tmp_path, rebalance_after_ms=300)
    with driver(dsn, settings) as first:
        for query in queries:
            control.reaches(query, "running")
        with driver(dsn, settings) as second:
            until("the load is shared", lambda: held(control, queries) == {first.id: 3, second.id: 2})
            moved = [query for query in queries if control.status(query)["lease_owner"] == second.id]
            for query in moved:
                assert control.reaches(query, "running", epoch=2)["attempt"] == 0
                control.works(query, epoch=2)
            for query in queries:
                control.works(query)
                assert_fenced(control, query)
            assert sum(row["epoch"] for query in queries for row in control.runs(query)[-1:]) == 5 + len(moved), (
                "nothing moves twice"
            )


def held(control: Control, queries: list[UUID]) -> dict[UUID, int]:
    """Count the running queries by driver."""
    found = [control.status(query) for query in queries]
    return dict(Counter(row["lease_owner"] for row in found if row["state"] == "running"))


def test_a_driver_takes_no_more_queries_than_its_cap_and_what_is_left_waits_for_another(
    dsn: str, tmp_path: Path, control: Control
) -> None:
    queries = [control.add() for _ in range(3)]
    settings = fast_settings(tmp_path, max_queries=2)
    with driver(dsn, settings) as first:
        until("two run", lambda: held(control, queries) == {first.id: 2})
        assert stays(lambda: held(control, queries) == {first.id: 2}, 0.5)
        (waiting,) = [query for query in queries if control.state(query) == "stopped"]
        control.want(next(query for query in queries if query != waiting), "stopped")
        control.reaches(waiting, "running")


def test_a_full_driver_still_brings_to_rest_what_another_one_left(dsn: str, tmp_path: Path, control: Control) -> None:
    settings = fast_settings(tmp_path, max_queries=1)
    kept = control.add()
    with driver(dsn, settings):
        control.reaches(kept, "running")
        left = control.add()
        control.execute("UPDATE slackwater.query_status SET state = 'running', epoch = 1 WHERE query_id = %s", left)
        control.want(left, "stopped")
        control.reaches(left, "stopped")
        assert control.state(kept) == "running"


def test_internal_queries_take_no_place_of_a_driver(dsn: str, tmp_path: Path, control: Control) -> None:
    settings = fast_settings(tmp_path, max_queries=1)
    internal = [control.add() for _ in range(2)]
    for query in internal:
        control.execute("UPDATE slackwater.query SET name = 'materialize:' || name WHERE id = %s", query)
    with driver(dsn, settings):
        for query in internal:
            control.reaches(query, "running")
        own = control.add()
        control.reaches(own, "running")
        waiting = control.add()
        assert stays(lambda: control.state(waiting) == "stopped", 0.5)


def test_many_kills_cost_no_attempt_where_nothing_was_under_way(dsn: str, tmp_path: Path, control: Control) -> None:
    queries = [control.add() for _ in range(3)]
    for kill in range(6):  # one more than attempts (4) and the first launch
        with driver(dsn, fast_settings(tmp_path, lease_ttl_ms=300)) as killed:
            for query in queries:
                status = control.reaches(query, "running", epoch=kill + 1)
                assert (status["attempt"], status["error"]) == (0, None)
            killed.kill()


@pytest.mark.slow
def test_a_query_that_kills_its_driver_is_found_and_fails_and_its_neighbours_pay_nothing(
    dsn: str, tmp_path: Path, control: Control
) -> None:
    # All have a batch under way when the driver dies, so each of them may be the cause.
    innocents = [control.add(is_unfinished=True) for _ in range(3)]
    with driver(dsn, fast_settings(tmp_path, lease_ttl_ms=300)):
        for query in innocents:
            control.works(query)
        culprit = control.add(is_unfinished=True, kills_driver=True)
        until("the first driver's end", lambda: control.status(culprit)["epoch"] == 1)
    for _ in range(12):
        with driver(dsn, fast_settings(tmp_path, lease_ttl_ms=300, max_attempts=2)) as one:
            until("an end", lambda one=one: one.process.poll() is not None or control.state(culprit) == "failed")  # type: ignore[misc]
            if control.state(culprit) == "failed":
                break
    status = control.status(culprit)
    assert (status["state"], status["error"]["code"]) == ("failed", "restart_budget_spent")
    assert "driver_lost" in status["error"]["detail"]
    with driver(dsn, fast_settings(tmp_path)):
        for query in innocents:
            control.works(query)
            assert control.status(query)["attempt"] == 0


@pytest.fixture
def hosts(tmp_path: Path) -> list[Path]:
    """Data directories of two hosts whose queries keep their state in one place elsewhere: they have its id, and no files in common."""
    made = [tmp_path / "first", tmp_path / "second"]
    for host in made:
        (host / "checkpoints").mkdir(parents=True)
        (host / "checkpoints" / ROOT_FILE).write_text(json.dumps({"format": 1, "id": str(ROOT.id)}))
    return made


def test_what_a_driver_on_another_host_was_doing_is_not_known_and_its_queries_are_no_innocents(
    dsn: str, hosts: list[Path], control: Control
) -> None:
    query = control.add(is_unfinished=True, phase="first_batch")
    with driver(dsn, fast_settings(hosts[0], lease_ttl_ms=300)) as first:
        control.works(query)
        first.kill()
    with driver(dsn, fast_settings(hosts[1])):
        control.works(query, epoch=2)
        status = control.status(query)
        assert (status["losses"], status["attempt"]) == (1, 0)


@pytest.mark.slow
def test_a_query_that_kills_drivers_on_two_hosts_in_turn_is_found_and_fails(
    dsn: str, hosts: list[Path], control: Control
) -> None:
    innocent = control.add(is_unfinished=True)
    with driver(dsn, fast_settings(hosts[1], lease_ttl_ms=300)):
        control.works(innocent)
    culprit = control.add(is_unfinished=True, phase="first_batch", kills_driver_at=3)
    for host in itertools.islice(itertools.cycle(hosts), 12):
        with driver(dsn, fast_settings(host, lease_ttl_ms=300, max_attempts=1)) as one:
            until("an end", lambda one=one: one.process.poll() is not None or control.state(culprit) == "failed")  # type: ignore[misc]
            if control.state(culprit) == "failed":
                break
    assert (control.state(culprit), control.status(culprit)["error"]["code"]) == ("failed", "restart_budget_spent")
    with driver(dsn, fast_settings(hosts[0])):
        control.works(innocent)
        assert control.status(innocent)["attempt"] == 0


def test_a_driver_takes_only_queries_whose_state_is_in_its_directory(dsn: str, tmp_path: Path, control: Control) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    old = control.add()
    with driver(dsn, fast_settings(tmp_path / "a", lease_ttl_ms=300)):
        control.works(old)
    with driver(dsn, fast_settings(tmp_path / "b")) as elsewhere:
        new = control.add()
        control.works(new)
        assert stays(lambda: control.status(old)["lease_owner"] != elsewhere.id, 1.0)
        assert control.status(old)["state"] != "failed"
        # Begun anew (?state=discard), it is anybody's; and to stop or delete one needs no state.
        control.execute("UPDATE slackwater.query SET checkpoint_id = gen_random_uuid() WHERE id = %s", old)
        control.works(old, epoch=2)
        with driver(dsn, fast_settings(tmp_path / "a")):
            control.want(old, "stopped")
            control.reaches(old, "stopped")

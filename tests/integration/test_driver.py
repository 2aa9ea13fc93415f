"""One real driver process on a real Postgres, with an engine that needs no Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import conninfo, sql

from app.driver.process import EXIT_QUERY_HUNG
from tests.integration.driver_tools import DEADLINE_S, Control, driver, fast_settings, stays, until


@pytest.fixture
def control(dsn: str) -> Iterator[Control]:
    control = Control(dsn)
    yield control
    control.close()


@contextmanager
def database_away(postgres_dsn: str, dsn: str) -> Iterator[None]:
    """Let nobody into the database, and put out who is in."""
    name = conninfo.conninfo_to_dict(dsn)["dbname"]
    door = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(door.format(sql.Identifier(str(name)), sql.Literal(False)))
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
        yield
        connection.execute(door.format(sql.Identifier(str(name)), sql.Literal(True)))


def test_a_wanted_query_runs_and_every_step_is_in_its_history(dsn: str, tmp_path: Path, control: Control) -> None:
    query = control.add()
    with driver(dsn, fast_settings(tmp_path)) as process:
        status = control.reaches(query, "running")
        control.works(query)
        assert (status["epoch"], status["attempt"], status["lease_owner"]) == (1, 0, process.id)
        assert control.events(query) == [("stopped", "starting"), ("starting", "running")]
        (run,) = control.runs(query)
        assert (run["epoch"], run["generation"], run["driver_id"], run["ended_at"]) == (1, 1, process.id, None)
        assert run["running_at"] >= run["started_at"]


def test_a_stopped_query_is_not_touched(dsn: str, tmp_path: Path, control: Control) -> None:
    idle, wanted = control.add(wants="stopped"), control.add()
    with driver(dsn, fast_settings(tmp_path)):
        control.reaches(wanted, "running")
        assert control.status(idle)["version"] == 1


def test_stop_pause_and_resume_follow_the_wish(dsn: str, tmp_path: Path, control: Control) -> None:
    query = control.add()
    with driver(dsn, fast_settings(tmp_path)) as process:
        control.reaches(query, "running")
        control.want(query, "paused")
        assert control.reaches(query, "paused")["lease_owner"] == process.id
        committed = len(control.commits(query))
        assert stays(lambda: len(control.commits(query)) == committed, 0.3)
        control.want(query, "running")
        control.reaches(query, "running", epoch=2)
        control.works(query, epoch=2)
        control.want(query, "stopped")
        assert control.reaches(query, "stopped")["lease_owner"] is None
        assert [run["end_reason"] for run in control.runs(query)] == ["paused", "stopped"]


def test_wishes_and_ends_are_heard_of_without_looking_at_all_queries(dsn: str, tmp_path: Path, control: Control) -> None:
    """All would be looked at after ten minutes only: nothing here waits for that."""
    with driver(dsn, fast_settings(tmp_path, poll_ms=600_000)):
        first = control.add()
        control.reaches(first, "running")
        control.want(first, "paused")
        control.reaches(first, "paused")
        mortal = control.add(dies_after=3)
        assert control.reaches(mortal, "failed")["error"]["code"] == "data_invalid"
        control.execute("NOTIFY slackwater_desired_state")
        control.execute("NOTIFY slackwater_desired_state, 'no query'")
        control.want(first, "running")
        control.reaches(first, "running", epoch=2)
        control.delete(first)
        until("it is gone", lambda: not control.rows("SELECT FROM slackwater.query WHERE id = %s", first))


def test_a_restart_takes_the_next_epoch_and_an_edit_the_next_generation(dsn: str, tmp_path: Path, control: Control) -> None:
    query = control.add()
    with driver(dsn, fast_settings(tmp_path)):
        control.reaches(query, "running")
        control.restart(query)
        control.reaches(query, "running", epoch=2)
        control.edit(query, note="another definition")
        status = control.reaches(query, "running", epoch=3)
        assert (status["observed_generation"], status["observed_restart_nonce"]) == (2, 1)
        control.works(query, epoch=3)
        assert control.commits(query)[-1]["generation"] == 2


def test_a_refused_definition_fails_at_once_with_its_reasons_until_it_is_edited(
    dsn: str, tmp_path: Path, control: Control
) -> None:
    query = control.add(refused=True)
    with driver(dsn, fast_settings(tmp_path)):
        status = control.reaches(query, "failed")
        assert status["error"]["code"] == "definition_invalid"
        assert status["error"]["errors"][0]["pointer"] == "/joins/0/on"
        assert (status["epoch"], status["lease_owner"]) == (1, None)
        control.edit(query)
        assert control.reaches(query, "running")["error"] is None


def test_a_query_that_dies_of_its_data_fails_and_a_restart_is_honoured(dsn: str, tmp_path: Path, control: Control) -> None:
    query = control.add(dies_after=3)
    with driver(dsn, fast_settings(tmp_path)):
        status = control.reaches(query, "failed")
        assert status["error"] == {
            "code": "data_invalid", "domain": "user", "retryable": False, "detail": "a record that the definition forbids"
        }  # fmt: skip
        control.restart(query)
        control.reaches(query, "failed", epoch=2)


def test_what_a_retry_may_help_is_retried_with_backoff(dsn: str, tmp_path: Path, control: Control) -> None:
    query = control.add(broken_before_epoch=2)
    with driver(dsn, fast_settings(tmp_path)):
        status = control.reaches(query, "running")
        assert (status["epoch"], status["attempt"]) == (3, 2)
        assert [run["error"] and run["error"]["code"] for run in control.runs(query)] == ["internal_error"] * 2 + [None]
        assert control.events(query).count(("stopping", "backoff")) == 2


def test_attempts_heal_after_a_while_of_health(dsn: str, tmp_path: Path, control: Control) -> None:
    query = control.add(broken_before_epoch=1)
    with driver(dsn, fast_settings(tmp_path, healthy_after_ms=100)):
        control.reaches(query, "running")
        until("healed", lambda: control.status(query)["attempt"] == 0)
        assert control.status(query)["error"] is None


def test_a_spent_budget_ends_in_failed_and_keeps_the_cause(dsn: str, tmp_path: Path, control: Control) -> None:
    query = control.add(broken_before_epoch=99)
    with driver(dsn, fast_settings(tmp_path, max_attempts=2)):
        error = control.reaches(query, "failed")["error"]
        assert error["code"] == "restart_budget_spent"
        assert "internal_error: a race was lost" in error["detail"]


def test_a_feed_that_is_away_spends_no_attempt_however_long(dsn: str, tmp_path: Path, control: Control) -> None:
    query = control.add(unavailable_before_epoch=6)
    with driver(dsn, fast_settings(tmp_path, max_attempts=2)):
        status = control.reaches(query, "running")
        assert (status["epoch"], status["attempt"]) == (7, 0)
        until("it has read something", lambda: control.status(query)["outages"] == 0)


def test_a_deleted_query_is_stopped_and_leaves_nothing(dsn: str, tmp_path: Path, control: Control) -> None:
    settings = fast_settings(tmp_path)
    query = control.add()
    kept = settings.checkpoints_dir / str(query) / "checkpoint" / "offsets"
    with driver(dsn, settings):
        control.reaches(query, "running")
        kept.mkdir(parents=True)
        control.delete(query)
        until("purged", lambda: not control.rows("SELECT 1 FROM slackwater.query WHERE id = %s", query))
        assert not (settings.checkpoints_dir / str(query)).exists()
        assert control.rows("SELECT 1 FROM log.commit WHERE query_id = %s", query) == []


def test_a_launch_removes_the_checkpoints_that_a_discard_left_behind(dsn: str, tmp_path: Path, control: Control) -> None:
    settings = fast_settings(tmp_path)
    query = control.add()
    former = settings.checkpoints_dir / str(query) / "00000000-0000-0000-0000-000000000001"
    present = (
        settings.checkpoints_dir
        / str(query)
        / str(control.rows("SELECT checkpoint_id FROM slackwater.query WHERE id = %s", query)[0]["checkpoint_id"])
    )
    former.mkdir(parents=True)
    present.mkdir(parents=True)
    with driver(dsn, settings):
        control.reaches(query, "running")
        assert (former.exists(), present.exists()) == (False, True)


def test_sigterm_stops_every_query_gives_the_leases_back_and_spends_no_attempt(
    dsn: str, tmp_path: Path, control: Control
) -> None:
    queries = [control.add() for _ in range(3)]
    with driver(dsn, fast_settings(tmp_path)) as process:
        for query in queries:
            control.reaches(query, "running")
        assert process.terminate() == 0
    for query in queries:
        status = control.status(query)
        assert (status["state"], status["outcome"], status["lease_owner"]) == ("stopping", "restart", None)
    assert control.drivers() == []
    with driver(dsn, fast_settings(tmp_path)):
        for query in queries:
            status = control.reaches(query, "running", epoch=2)
            assert (status["epoch"], status["attempt"]) == (2, 0)


def test_a_query_that_does_not_stop_makes_its_driver_hand_over_the_others_and_end(
    dsn: str, tmp_path: Path, control: Control
) -> None:
    stubborn, other = control.add(ignores_stop=True), control.add()
    with driver(dsn, fast_settings(tmp_path)) as process:
        control.reaches(stubborn, "running")
        control.reaches(other, "running")
        control.restart(stubborn)
        assert process.process.wait(DEADLINE_S) == EXIT_QUERY_HUNG
    handed_over = control.status(other)
    assert (handed_over["state"], handed_over["outcome"], handed_over["lease_owner"]) == ("stopping", "restart", None)
    held = control.status(stubborn)
    assert (held["state"], held["lease_owner"]) == ("stopping", process.id), (
        "what still ran at the end is not given back by its driver"
    )
    with driver(dsn, fast_settings(tmp_path)):
        control.reaches(other, "running", epoch=2)
        control.reaches(stubborn, "running", epoch=2)


def test_a_running_query_shows_what_it_does_before_its_first_commit(dsn: str, tmp_path: Path, control: Control) -> None:
    busy, ordinary = control.add(phase="first_batch"), control.add()
    with driver(dsn, fast_settings(tmp_path)):
        control.reaches(busy, "running")
        until("it says what it does", lambda: control.status(busy)["phase"] == "first_batch")
        assert control.reaches(ordinary, "running")["phase"] is None
        control.want(busy, "stopped")
        assert control.reaches(busy, "stopped")["phase"] is None


def test_a_launch_that_hangs_is_given_up_and_the_others_go_on_in_the_next_driver(
    dsn: str, tmp_path: Path, control: Control
) -> None:
    hanging = control.add(hangs_on_launch=True)
    with driver(dsn, fast_settings(tmp_path, stop_timeout_ms=300)) as process:
        until("it hangs", lambda: control.status(hanging)["phase"] == "restoring")
        waiting = control.add()
        assert control.reaches(waiting, "starting")["phase"] in (None, "queued")
        assert process.process.wait(DEADLINE_S) == EXIT_QUERY_HUNG
    assert (control.state(hanging), control.status(hanging)["outcome"]) == ("stopping", "backoff")
    control.want(hanging, "stopped")
    with driver(dsn, fast_settings(tmp_path)):
        control.reaches(waiting, "running")
        assert control.reaches(hanging, "stopped")["error"] is None


def test_a_database_that_goes_away_costs_the_launches_but_not_the_driver(
    postgres_dsn: str, dsn: str, tmp_path: Path, control: Control
) -> None:
    query = control.add()
    with driver(dsn, fast_settings(tmp_path)) as process:
        control.reaches(query, "running")
        control.works(query)
        with database_away(postgres_dsn, dsn):
            # Once a second: longer than the leases hold.
            until("the driver has noticed for a while", lambda: process.log.read_bytes().count(b"database_unavailable") >= 6)
        back = Control(dsn)
        assert back.reaches(query, "running", epoch=2)["lease_owner"] == process.id
        back.works(query, epoch=2)
        back.close()
        assert process.process.poll() is None


def test_a_driver_whose_supervisor_is_gone_ends_in_order(dsn: str, tmp_path: Path, control: Control) -> None:
    query = control.add()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        # A process that is not the parent: to the driver that is a parent that is gone.
        with driver(dsn, fast_settings(tmp_path), "--supervisor-pid", str(stranger.pid)) as process:
            assert process.process.wait(DEADLINE_S) == 0
        stranger.communicate(b"\n")
    assert control.status(query)["lease_owner"] is None


def test_a_driver_whose_supervisor_lives_stays(dsn: str, tmp_path: Path, control: Control) -> None:
    query = control.add()
    with driver(dsn, fast_settings(tmp_path), "--supervisor-pid", str(os.getpid())) as process:
        control.reaches(query, "running")
        assert process.process.poll() is None

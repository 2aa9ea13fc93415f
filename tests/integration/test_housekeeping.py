"""What nothing else removes: history of queries, drivers that were killed, versions that no commit comes across."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress

import psycopg
import pytest

from app.catalog.stored.catalog import output_to_json
from app.upkeep.retention import RetentionLimits, forget_versions, trim_once
from engine.commit.views import create_view
from engine.expressions.types.types import Schema, parse_type
from engine.plan.model import Output
from engine.postgres.postgres import IDLE_SECONDS, connect

WEEK = RetentionLimits(7 * 86_400_000, history_rows=3)
R = 1_000
OUTPUT = Output(
    "prices", "table", Schema((("k", parse_type("string")), ("n", parse_type("bigint")))), ("k",), False, False, None,
    history_retention_ms=R,
)  # fmt: skip


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection
        connection.execute("DROP TABLE IF EXISTS views.prices, history.prices")
        connection.execute("TRUNCATE slackwater.query, slackwater.relation, slackwater.driver, log.commit CASCADE")


def a_query(connection: psycopg.Connection, name: str) -> uuid.UUID:
    query_id = uuid.uuid4()
    connection.execute(
        "INSERT INTO slackwater.query (id, name, definition, desired_state, checkpoint_id) VALUES (%s, %s, '{}', 'stopped', %s)",
        (query_id, name, query_id),
    )
    return query_id


def test_the_newest_events_and_runs_of_each_query_are_kept(connection: psycopg.Connection, dsn: str) -> None:
    busy, quiet = a_query(connection, "busy"), a_query(connection, "quiet")
    for query_id, count in ((busy, 10), (quiet, 2)):
        for number in range(1, count + 1):
            connection.execute(
                "INSERT INTO slackwater.query_event (query_id, kind, actor, epoch) VALUES (%s, 'tried', 'driver', %s)",
                (query_id, number),
            )
            connection.execute(
                "INSERT INTO slackwater.query_run (query_id, epoch, generation) VALUES (%s, %s, 1)", (query_id, number)
            )
    trim_once(dsn, WEEK)
    for table in ("query_event", "query_run"):
        rows = connection.execute(f"SELECT query_id, epoch FROM slackwater.{table}").fetchall()
        assert sorted(epoch for query_id, epoch in rows if query_id == busy) == [8, 9, 10]
        assert sorted(epoch for query_id, epoch in rows if query_id == quiet) == [1, 2]


def test_a_driver_that_was_not_heard_of_for_a_day_is_forgotten(connection: psycopg.Connection, dsn: str) -> None:
    for hours in (1, 23, 25):
        connection.execute(
            "INSERT INTO slackwater.driver (id, host, pid, create_time, phase, heartbeat_at) "
            "VALUES (%s, 'gone', %s, 0, 'ready', now() - %s * interval '1 hour')",
            (uuid.uuid4(), hours, hours),
        )
    trim_once(dsn, WEEK)
    assert connection.execute("SELECT pid FROM slackwater.driver ORDER BY pid").fetchall() == [(1,), (23,)]


def a_versioned_result(connection: psycopg.Connection) -> uuid.UUID:
    query_id = a_query(connection, "prices")
    create_view(connection, OUTPUT)
    connection.execute(
        "INSERT INTO slackwater.relation (id, name, kind, origin, produced_by, definition) VALUES (%s, 'prices', 'table', 'derived', %s, %s)",
        (uuid.uuid4(), query_id, json.dumps(output_to_json(OUTPUT))),
    )
    connection.execute(
        "INSERT INTO log.commit (query_id, checkpoint_id, epoch, stream_time_ms) VALUES (%s, %s, 1, 5000)", (query_id, query_id)
    )
    return query_id


def test_versions_that_no_read_can_reach_go_and_others_stay(connection: psycopg.Connection, dsn: str) -> None:
    a_versioned_result(connection)
    versions = {
        "live": [(1000, False), (2000, False), (4500, False)],  # as of 4000 the one of 2000 answers
        "idle": [(1000, False), (2000, False)],
        "gone": [(1000, False), (2000, True)],
        "back": [(2000, True), (4500, False)],  # its tombstone still answers 4000
        "fresh": [(4000, True)],
    }
    for key, own in versions.items():
        for ts, is_deleted in own:
            connection.execute("INSERT INTO history.prices VALUES (%s, 1, %s, %s)", (key, ts, is_deleted))
    assert forget_versions(dsn) == 4
    rows = connection.execute("SELECT k, _ts FROM history.prices ORDER BY 1, 2").fetchall()
    assert rows == [("back", 2000), ("back", 4500), ("fresh", 4000), ("idle", 2000), ("live", 2000), ("live", 4500)]
    assert forget_versions(dsn) == 0


def test_looking_for_old_versions_holds_up_no_commit(connection: psycopg.Connection, dsn: str) -> None:
    query_id = a_versioned_result(connection)
    connection.execute("INSERT INTO history.prices VALUES ('idle', 1, 1000, false)")
    impatient = psycopg.conninfo.make_conninfo(dsn, options="-c lock_timeout=1s")
    with psycopg.connect(dsn) as committing:
        committing.execute("SELECT FROM log.commit WHERE query_id = %s FOR UPDATE", (query_id,))
        assert forget_versions(impatient) == 0
        connection.execute("INSERT INTO history.prices VALUES ('idle', 1, 2000, false)")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            forget_versions(impatient)
    assert forget_versions(impatient) == 1


def test_a_trim_whose_link_died_does_not_hold_its_locks_for_ever(dsn: str) -> None:
    with connect(dsn, "slackwater-trim", 1) as trimming, psycopg.connect(dsn, autocommit=True) as writer:
        writer.execute("INSERT INTO log.feed (name, partitions) VALUES ('held', 1) ON CONFLICT DO NOTHING")
        with suppress(psycopg.Error), trimming.transaction():
            trimming.execute("UPDATE log.feed SET retention_ms = 1 WHERE name = 'held'")
            writer.execute("SET lock_timeout = '20s'")
            writer.execute("UPDATE log.feed SET retention_ms = 2 WHERE name = 'held'")
        assert writer.execute("DELETE FROM log.feed WHERE name = 'held' RETURNING retention_ms").fetchone() == (2,)


@pytest.mark.parametrize("sweep", [lambda dsn: trim_once(dsn, WEEK), forget_versions])
def test_who_sweeps_has_an_end_of_idle_transactions(
    dsn: str, monkeypatch: pytest.MonkeyPatch, sweep: Callable[[str], int]
) -> None:
    said: list[int | None] = []

    def noted(dsn: str, name: str, idle_s: int | None = None) -> psycopg.Connection:
        said.append(idle_s)
        return connect(dsn, name, idle_s)

    monkeypatch.setattr("app.upkeep.retention.connect", noted)
    sweep(dsn)
    assert said == [IDLE_SECONDS]

"""A query's events have ids in the order of their commits: who follows by id passes over none."""

from __future__ import annotations

import threading
import uuid

import psycopg

from tests.integration.driver_tools import until

_INSERT = "INSERT INTO slackwater.query_event (query_id, kind, actor) VALUES (%s, %s, 'test') RETURNING id"


def test_an_event_that_commits_later_has_the_higher_id(dsn: str) -> None:
    query_id = uuid.uuid4()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO slackwater.query (id, name, definition, desired_state, checkpoint_id) VALUES (%s, 'q', '{}', 'running', %s)",
            (query_id, uuid.uuid4()),
        )
    ids: dict[str, int] = {}

    def insert(connection: psycopg.Connection, kind: str) -> None:
        row = connection.execute(_INSERT, (query_id, kind)).fetchone()
        assert row is not None
        ids[kind] = row[0]

    with psycopg.connect(dsn) as service, psycopg.connect(dsn) as driver, psycopg.connect(dsn, autocommit=True) as watcher:
        service.execute("SELECT 1 FROM slackwater.query WHERE id = %s FOR UPDATE", (query_id,))
        thread = threading.Thread(target=insert, args=(driver, "of the driver"))
        thread.start()
        waits = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
        until("the driver waits", lambda: watcher.execute(waits, (driver.info.backend_pid,)).fetchone() == (1,))
        insert(service, "of the service")
        service.commit()
        thread.join()
        driver.commit()
    assert ids["of the service"] < ids["of the driver"]

"""A data directory of the last release is upgraded as a user does it: ``slackwater serve`` of this version is started on it.

``service-<revision>.tar.xz`` (``tests.stored.service``) holds what a service of that version left when it was stopped, its database and its
checkpoints: Spark's own, in a layout that this version takes over at the first launch (``engine.spark.old_checkpoints``), and manifests of an
older format. There are a join with records that wait and some that were late, one with windows behind it, open windows, open sessions, running
totals and a copy; one query is stopped, one paused. This version migrates the schema, answers over HTTP what the old one did, takes the state
over, is killed in the midst of it with all that it started, and goes on with new records: the auditor of the fault tests finds every result of
both parts as one batch computation has it, each record once. Pieces of this, and damaged checkpoints: ``tests/spark/test_old_checkpoints.py``,
``test_stored.py``, ``test_code.py``. Takes a minute and a half.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import pytest
from slackwater import Client

from tests.faults.audited import QUERIES, Oracle
from tests.faults.auditor import audit
from tests.faults.chaos import RECOVERED_S, has_read
from tests.faults.service import Body, Feeder, service_of, until
from tests.stored.service import BODIES, CHECKPOINTS, GAVE, PAUSED, STOPPED, Upgraded, answers, digest_of, newest, script

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1_200)]

MORE = 40
"""Requests that this version gets, before the last ones."""


def old_checkpoints(running: Upgraded) -> list[Path]:
    return [*(running.data_dir / CHECKPOINTS).glob("*/*/epoch-*")]


def test_a_data_directory_of_the_last_release_opens_goes_on_and_gives_what_it_gave() -> None:
    Upgraded.archive = newest()
    said = script()
    bodies = said.bodies()
    assert len(sent := list(islice(bodies, BODIES))) == BODIES
    with service_of(Upgraded) as running, Client(running.url, timeout=60) as client:
        gave = json.loads((running.data_dir / GAVE).read_text())
        assert gave.pop("sent") == digest_of(sent), "the script makes other requests now: the old version has had others"
        assert answers(client) == gave
        assert {client.query(name).status()["state"] for name in (STOPPED, PAUSED)} == {"stopped", "paused"}
        running.kill_everything()
        assert answers(client) == gave

        def rest() -> Iterator[Body]:
            yield from islice(bodies, MORE)
            said.is_over = True
            yield from bodies

        feeder = Feeder(running.url, rest(), pause_s=0.1)
        feeder.start()
        for name in (STOPPED, PAUSED):
            client.call("PUT", f"/v1/queries/{name}/desired-state", {"state": "running"})
        until("everything was acknowledged", lambda: feeder.is_done, RECOVERED_S)
        until("everything was read", partial(has_read, client, list(QUERIES), feeder.ends), RECOVERED_S)
        found = audit(client, Oracle(said), list(QUERIES))
        print(found)
        assert found.is_clean, str(found)
        until("what was taken over is removed", lambda: not old_checkpoints(running), RECOVERED_S)
        assert [event for name in QUERIES for event in client.query(name).events() if event.to_state == "failed"] == []

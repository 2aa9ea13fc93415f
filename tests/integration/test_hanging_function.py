"""A Python function that hangs, in a whole service: neither unit tests of its calls nor of the watch show how long both take together."""

from __future__ import annotations

import time

import pytest
from slackwater import Client

from app.testing.machines.service import Service, service_of
from tests.faults.service import until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

STATEMENTS = """
CREATE STREAM readings (n INT, made TIMESTAMP) WITH (KAFKA_TOPIC='readings', VALUE_FORMAT='JSON', TIMESTAMP='made', PARTITIONS=1);
CREATE FUNCTION twice(n INT) RETURNS INT LANGUAGE PYTHON AS $$
  while (n > 0).any():
      pass
  return n * 2
$$;
CREATE STREAM doubled AS SELECT n, twice(n) AS m FROM readings;
"""
NAMED_S = 60.0
"""From the first record that the function hangs on until its query has failed and says which function that was."""


def test_a_function_that_hangs_for_ever_is_named_within_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    with service_of(Service, {"SLACKWATER_SQL__PYTHON_FUNCTIONS": "true"}) as running, Client(running.url) as client:
        client.sql(STATEMENTS)
        client.stream("readings").append(b'{"N": 0, "MADE": "2026-01-01T00:00:00Z"}')
        until("the function gave its first value", lambda: client.query("doubled").status().emitted_rows == 1, 120)
        began_s = time.monotonic()
        client.stream("readings").append(b'{"N": 1, "MADE": "2026-01-01T00:00:01Z"}\n' * 1_000)
        until("the query has failed", lambda: client.query("doubled").status().state == "failed", NAMED_S)
        with capsys.disabled():
            print(f"named after {time.monotonic() - began_s:.1f} s")
        error = client.query("doubled").status().error
        assert error is not None
        assert (error.code, "the function twice failed: it took more than 10 s" in error.detail) == ("function_failed", True), (
            error
        )

"""The guide about Kafka, to the letter: its statements on a service beside a real broker."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.guide.blocks import steps
from tests.guide.pages import Runner, runner
from tests.guide.running import page_on
from tests.kafka.test_delivery import taken
from tests.kafka.topics import Cluster, Sent

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]
PAGE = ROOT / "docs" / "guides" / "kafka.md"
BROKER = "kafka:9092"
NOT_RUN = re.compile(r"<!-- not run: needs a Kafka broker; tests/kafka/test_guide.py runs it -->\n")
NOON_MS = 1_748_779_200_000  # 2025-06-01T12:00:00Z
# The last click lets the one before it go, which closes the minute.
CLICKS = [("ada", 0), ("bob", 5_000), ("ada", 30_000), ("ada", 90_000), ("ada", 101_000)]


@pytest.fixture(scope="module")
def service() -> Iterator[Runner]:
    with runner() as running:
        yield running


def test_every_statement_of_the_page_does_what_it_shows(service: Runner, kafka: Cluster, tmp_path: Path) -> None:
    users = [("ada", "Oslo"), ("bob", None)]
    kafka.send(
        kafka.topic(name="users"),
        [
            Sent(None if city is None else json.dumps({"city": city}).encode(), name.encode(), NOON_MS - 1_000)
            for name, city in users
        ],
    )
    kafka.send(
        kafka.topic(name="clicks"),
        [
            Sent(
                json.dumps({"page": "/", "ts": NOON_MS + after_ms}).encode(), name.encode(), NOON_MS + after_ms,
                headers=[("traceparent", b"00-1-2-01")],
            )
            for name, after_ms in CLICKS
        ],
    )  # fmt: skip
    text, count = NOT_RUN.subn("", PAGE.read_text())
    page = tmp_path / PAGE.name
    page.write_text(text.replace(BROKER, kafka.bootstrap))
    with page_on(service.url, service.folder("docs/guides/kafka.md")) as running:
        for step in steps(page):
            running.check(step)
        assert len(steps(page)) == count - 1, "an answer is no step of its own"
        found = taken(kafka, "clicks_per_city", 1, seconds=60.0)
    assert [json.loads(each.value() or b"")["CLICKS"] for each in found] == [2]

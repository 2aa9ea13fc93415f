"""Brokers for the tests of this directory. Who asks for ``broker`` or ``kafka`` is marked ``kafka``: ``make kafka`` runs it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kafka.broker import Broker, running, why_not
from tests.kafka.topics import Cluster, mock_cluster

OF_BROKER = {"broker", "kafka", "own_broker"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if OF_BROKER & {*getattr(item, "fixturenames", ())}:
            item.add_marker(pytest.mark.kafka)


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """A real broker of the session's. It is not killed: see ``own_broker``."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with running() as broker:
        yield broker


@pytest.fixture
def kafka(broker: Broker) -> Cluster:
    """The real broker, to make topics on."""
    return Cluster(broker.bootstrap)


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    """A real broker of the test's own, which it may kill."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with running() as broker:
        yield broker


@pytest.fixture
def mock() -> Cluster:
    """librdkafka's mock cluster."""
    return mock_cluster()

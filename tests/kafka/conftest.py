"""Brokers for the tests of this directory. Who asks for ``broker`` or ``kafka`` is marked ``kafka``: ``make kafka`` runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psycopg
import pytest

from engine.postgres.postgres import Connection
from tests.kafka import real_registry
from tests.kafka.broker import Broker, running, why_not
from tests.kafka.real_registry import RealRegistry, running_registry
from tests.kafka.registries import Connected, Registered, connected, registered
from tests.kafka.topics import Cluster, mock_cluster

OF_BROKER = {"broker", "kafka", "own_broker", "registry_server", "own_registry"}
REAL = tuple(real_registry.VERSIONS)
SMALL = "small"


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


@pytest.fixture
def connection(dsn: str) -> Iterator[Connection]:
    """A connection to a database without feeds."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DELETE FROM log.feed")
        yield connection


@pytest.fixture
def registry(connection: Connection) -> Iterator[Registered]:
    """The small registry of ours, to which a connection is stored."""
    with registered(connection) as found:
        yield found


@pytest.fixture(scope="session")
def real_registries() -> Iterator[Callable[[str], RealRegistry]]:
    """The session's real registries, each started when a test first asks for it."""
    with ExitStack() as stack:
        found: dict[str, RealRegistry] = {}

        def of(version: str) -> RealRegistry:
            if (reason := real_registry.why_not(version)) is not None:
                pytest.skip(reason)
            if version not in found:
                found[version] = stack.enter_context(running_registry(version))
            return found[version]

        yield of


@pytest.fixture(params=REAL)
def registry_server(request: pytest.FixtureRequest, real_registries: Callable[[str], RealRegistry]) -> RealRegistry:
    """A real registry of the session's. It is not stopped: see ``own_registry``."""
    return real_registries(request.param)


@pytest.fixture(params=[SMALL, *(pytest.param(version, marks=pytest.mark.kafka) for version in REAL)])
def any_registry(
    request: pytest.FixtureRequest, connection: Connection, real_registries: Callable[[str], RealRegistry]
) -> Iterator[Connected]:
    """A registry to which a connection is stored: the small one of ours, or a real one."""
    with registered(connection) if request.param == SMALL else connected(connection, real_registries(request.param).url) as found:
        yield found


@pytest.fixture(params=REAL)
def own_registry(request: pytest.FixtureRequest) -> Iterator[RealRegistry]:
    """A real registry of the test's own, which it may stop."""
    if (reason := real_registry.why_not(request.param)) is not None:
        pytest.skip(reason)
    with running_registry(request.param) as found:
        yield found

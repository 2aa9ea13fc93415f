"""All that listens while a service runs with its driver: what it is, that only this machine reaches it, and what a stranger gets of it.

A process alone shows it: the driver's JVM, its workers and the database open what they listen on themselves.
"""

from __future__ import annotations

import socket
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import httpx
import psutil
import pytest

from app.testing.machines.service import Service, command_of, free_port, service_of
from tests.api.port_attacks import ATTACKS, ksqldb_port, main_port
from tests.integration.driver_tools import until

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(300)]

SETTINGS = {"SLACKWATER_CLIENT_TIMEOUT_S": "1", "SLACKWATER_SPARK__DRIVER_MEMORY": "1g"}
STRANGERS = (b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n", b"c\nt\nshutdown\ne\n", b"g\np0\ne\n", b"A\nwrong\n", bytes(64))
"""HTTP; calls and collections of garbage of py4j without the token, and with a wrong one; frames of Spark's."""


class WithKsqldb(Service):
    """A service with a port for clients of ksqlDB."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.ksql_port = free_port()

    def environment(self) -> dict[str, str]:
        """See ``Service``."""
        return super().environment() | {"SLACKWATER_KSQL_PORT": str(self.ksql_port)}

    def path_of(self, address: str) -> Path | None:
        """Return the file of a Unix socket, None if it is gone. Some processes bind theirs below a handle of a folder."""
        path = Path(address)
        return path if path.exists() else next(self.data_dir.rglob(path.name), None)

    def processes(self) -> list[psutil.Process]:
        """Return the service, and all that was started for it."""
        assert self._process is not None
        return [psutil.Process(self._process.pid), *self._children(), *self._database()]


@dataclass(frozen=True)
class Listening:
    """A socket that listens.

    Attributes:
        owner: what the process is.
        host: an address; of a socket of the file system None.
        place: port or path.
    """

    owner: str
    host: str | None
    place: int | str


@pytest.fixture(scope="module")
def running() -> Iterator[WithKsqldb]:
    with service_of(WithKsqldb, SETTINGS) as found:
        with httpx.Client(base_url=found.url, timeout=90) as http:
            sql = "CREATE STREAM s (id STRING KEY, n INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=1);"
            sql += "CREATE TABLE t AS SELECT id, COUNT(*) AS n FROM s GROUP BY id;"
            assert http.post("/v1/statements", json={"sql": sql}).status_code == 200
            http.post("/v1/statements", json={"sql": "INSERT INTO s (id, n) VALUES ('a', 1);"})
            while http.get("/v1/queries/t").json().get("state") != "running":
                assert http.get("/readyz").status_code == 200
        yield found


def owner_of(process: psutil.Process) -> str:
    command = command_of(process)
    named = {"app.cli": "service", "org.apache.spark": "Spark", "postgres": "Postgres", "app.driver": "driver"}
    return next((name for mark, name in named.items() if mark in command), "worker")


def listening(running: WithKsqldb) -> set[Listening]:
    paths = _listening_paths()
    found = set()
    for process in running.processes():
        with suppress(psutil.NoSuchProcess):
            for each in process.net_connections("all"):
                if each.family == socket.AF_UNIX and str(each.laddr) in paths:
                    found.add(Listening(owner_of(process), None, str(each.laddr)))
                elif each.status == psutil.CONN_LISTEN:
                    found.add(Listening(owner_of(process), each.laddr.ip, each.laddr.port))
    return found


def _listening_paths() -> set[str]:
    """Paths of Unix sockets that accept connections: the flag of the kernel is 0x10000."""
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return {row[7] for row in rows if len(row) > 7 and int(row[3], 16) & 0x10000}


def test_whatever_listens_is_known_and_reached_from_this_machine_alone(running: WithKsqldb) -> None:
    found = listening(running)
    print(*sorted(map(str, found)), sep="\n")
    assert {each.place for each in found if each.owner == "service" and each.host} == {running.port, running.ksql_port}
    for each in found:
        if each.host is not None:
            address = ip_address(each.host)
            assert (getattr(address, "ipv4_mapped", None) or address).is_loopback, each
        elif (path := running.path_of(str(each.place))) is not None:
            own = [path, *(part for part in path.parents if part.is_relative_to(running.data_dir))]
            assert any(not part.stat().st_mode & (stat.S_IRWXO | stat.S_IRWXG) for part in own), f"{each}: others may connect"


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
async def test_attack_is_refused(running: WithKsqldb, attack: object) -> None:
    for port in (main_port(running.port), ksqldb_port(running.ksql_port)):
        await attack(port)  # type: ignore[operator]
    async with httpx.AsyncClient(base_url=running.url) as http:
        assert (await http.get("/healthz")).status_code == 200


@pytest.mark.parametrize("sent", STRANGERS)
def test_ports_of_the_inside_give_a_stranger_nothing(running: WithKsqldb, sent: bytes) -> None:
    inside = [each for each in listening(running) if each.host is not None and each.owner != "service"]
    for each in inside:
        with socket.create_connection((each.host, int(each.place)), timeout=5) as connection:
            connection.sendall(sent)
            answer = b""
            with suppress(OSError):
                connection.settimeout(1)
                answer = connection.recv(4_096)
        assert not answer.startswith((b"!y", b"y", b"HTTP/1.1 200")), (each, answer)
    until("the driver is ready", lambda: httpx.get(f"{running.url}/readyz?for=driver").status_code == 200, 30)

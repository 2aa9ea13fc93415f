"""Trying connections against servers of this machine: what is reached, and each reason why not; no secret in any of it."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from psycopg.conninfo import conninfo_to_dict

from engine.connections.attempts import Reason
from engine.connections.checking import Outcome, check
from engine.connections.keys import SecretKeys
from engine.connections.kinds import read_connection
from engine.connections.secret_sources import SecretSources
from engine.connections.stored import sealed
from engine.definition.connections.hosts import HostBounds
from tests.unit.connections.certificates import Issued, issue

KEYS = SecretKeys("k" * 32)
SECRET = "pw-Zx81MARKERq7"
AROUND = SecretSources(KEYS)


def tried(body: dict[str, Any], around: SecretSources = AROUND, most_s: float = 3.0) -> Outcome:
    outcome = check(sealed("x", read_connection(body), KEYS), around, most_s)
    assert SECRET not in outcome.detail
    return outcome


def kafka(port: int, **more: Any) -> dict[str, Any]:
    return {"type": "kafka", "bootstrap": f"127.0.0.1:{port}", **more}


def registry(url: str, **more: Any) -> dict[str, Any]:
    return {"type": "registry", "urls": [url], **more}


@pytest.fixture(scope="module")
def issued() -> Issued:
    return issue("127.0.0.1")


@contextmanager
def answering(
    status: int, body: bytes = b"[]", tls: Issued | None = None, directory: Path | None = None
) -> Iterator[tuple[int, list[str]]]:
    """A server that answers everything so; yields its port and the `Authorization` of each request."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("authorization", ""))
            self.send_response(status)
            self.send_header("location", "http://127.0.0.1:1/elsewhere")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that does not trust the certificate hangs up."""

    server = Quiet(("127.0.0.1", 0), Handler)
    if tls is not None and directory is not None:
        (directory / "c.pem").write_text(tls.certificate)
        (directory / "k.pem").write_text(tls.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory / "c.pem", directory / "k.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port, seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def silent() -> Iterator[int]:
    """Somebody who accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@pytest.fixture
def broker() -> Iterator[int]:
    """librdkafka's own mock broker."""
    owner = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock"})
    yield next(iter(owner.list_topics(timeout=10).brokers.values())).port
    owner.flush(0)


def test_brokers_are_reached(broker: int) -> None:
    outcome = tried(kafka(broker), most_s=10)
    assert (outcome.outcome, outcome.reason) == ("reached", None), outcome
    assert outcome.detail == "1 brokers, 0 topics"


def test_a_broker_that_answers_slowly_is_reached() -> None:
    owner = Producer({"test.mock.num.brokers": 1, "test.mock.broker.rtt": 700, "bootstrap.servers": "mock"})
    port = next(iter(owner.list_topics(timeout=10).brokers.values())).port
    assert tried(kafka(port), most_s=10).outcome == "reached"
    owner.flush(0)


def test_a_listener_without_tls_is_told_from_one_with(broker: int) -> None:
    assert tried(kafka(broker, tls={}), most_s=10).reason == "tls"


def test_a_broker_that_knows_no_sasl_refuses_who_asks(broker: int) -> None:
    outcome = tried(kafka(broker, sasl={"mechanism": "PLAIN", "username": "u", "password": SECRET}), most_s=10)
    assert outcome.reason in ("authentication", "timeout"), outcome


@pytest.mark.parametrize("kind", ["kafka", "registry", "s3", "postgres"])
def test_who_says_nothing_costs_no_more_than_the_time(kind: str) -> None:
    with silent() as port:
        bodies = {
            "kafka": kafka(port),
            "registry": registry(f"http://127.0.0.1:{port}"),
            "s3": {"type": "s3", "bucket": "lake", "endpoint": f"http://127.0.0.1:{port}"},
            "postgres": {
                "type": "postgres",
                "host": "127.0.0.1",
                "port": port,
                "database": "d",
                "username": "u",
                "password": SECRET,
            },
        }
        began = time.monotonic()
        outcome = tried(bodies[kind], most_s=1.0)
        assert outcome.reason == "timeout", outcome
        assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("host", "reason"),
    [("127.0.0.1", "refused"), ("nothing.invalid", "name_not_resolved"), ("169.254.169.254", "host_not_allowed")],
)
def test_each_kind_says_why_nothing_is_reached(host: str, reason: Reason) -> None:
    port = free_port()
    for body in (
        {"type": "kafka", "bootstrap": f"{host}:{port}"},
        registry(f"http://{host}:{port}"),
        {"type": "s3", "bucket": "lake", "endpoint": f"http://{host}:{port}"},
        {"type": "postgres", "host": host, "port": port, "database": "d", "username": "u", "password": SECRET},
    ):
        assert tried(body).reason == reason


def test_every_node_is_held_against_the_setting_before_any_is_asked() -> None:
    with answering(500) as (port, _):
        around = SecretSources(KEYS, hosts=HostBounds.of("127.0.0.1/32,127.0.0.2/32"))
        urls = [f"http://127.0.0.1:{port}", f"http://{socket.gethostname()}.invalid:{port}", "http://127.1.0.1.:1"]
        assert tried({"type": "registry", "urls": urls}, around).reason == "host_not_allowed"


def test_a_name_is_held_against_the_setting_by_where_it_leads() -> None:
    with answering(200) as (port, _):
        around = SecretSources(KEYS, hosts=HostBounds.of("10.0.0.0/8"))
        assert tried(registry(f"http://localhost:{port}"), around).reason == "host_not_allowed"


@pytest.mark.parametrize(
    ("status", "reason"),
    [(200, None), (401, "authentication"), (403, "not_allowed"), (404, "unexpected_answer"),
     (302, "unexpected_answer"), (500, "unexpected_answer")],
)  # fmt: skip
def test_a_registry_says_what_it_answers_and_what_it_says_is_not_repeated(status: int, reason: Reason | None) -> None:
    with answering(status, SECRET.encode()) as (port, seen):
        outcome = tried(registry(f"http://127.0.0.1:{port}", username="u", password=SECRET))
    assert outcome.reason == reason, outcome
    assert seen == [f"Basic {b64encode(f'u:{SECRET}'.encode()).decode()}"], "asked once, and no redirect followed"


def test_tls_is_checked_and_its_authority_can_be_given(issued: Issued, tmp_path: Path) -> None:
    with answering(200, tls=issued, directory=tmp_path) as (port, seen):
        assert tried(registry(f"https://127.0.0.1:{port}")).reason == "tls"
        assert tried(registry(f"https://127.0.0.1:{port}", tls={"ca": issue("127.0.0.1").ca})).reason == "tls"
        assert tried(registry(f"https://localhost:{port}", tls={"ca": issued.ca})).reason == "tls", "it is of another host"
        assert seen == []
        assert tried(registry(f"https://127.0.0.1:{port}", tls={"ca": issued.ca})).reason is None
        assert tried(registry(f"https://localhost:{port}", tls={"ca": issued.ca, "verify_host": False})).reason is None
        s3 = {"type": "s3", "bucket": "lake", "endpoint": f"https://127.0.0.1:{port}"}
        assert tried(s3).reason == "tls"
        assert tried(kafka(port, tls={})).reason == "tls"


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (200, b"<ListBucketResult></ListBucketResult>", None),
        (403, b"<Error><Code>InvalidAccessKeyId</Code></Error>", "authentication"),
        (403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>", "authentication"),
        (403, b"<Error><Code>AccessDenied</Code></Error>", "not_allowed"),
        (404, b"<Error><Code>NoSuchBucket</Code></Error>", "not_found"),
        (400, b"<Error><Code>Odd</Code></Error>", "unexpected_answer"),
    ],
)
def test_a_bucket_says_what_it_answers(status: int, body: bytes, reason: Reason | None) -> None:
    with answering(status, body) as (port, seen):
        outcome = tried(
            {
                "type": "s3",
                "bucket": "lake",
                "endpoint": f"http://127.0.0.1:{port}",
                "access_key_id": "id",
                "secret_access_key": SECRET,
            }
        )
    assert outcome.reason == reason, outcome
    assert len(seen) == 1


@contextmanager
def relayed(path: str) -> Iterator[int]:
    """Loopback before a socket of the file system, on which alone the database of the tests listens."""

    def pump(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def relay(near: socket.socket) -> None:
        with near, socket.socket(socket.AF_UNIX) as far:
            far.connect(path)
            back = threading.Thread(target=pump, args=(far, near), daemon=True)
            back.start()
            pump(near, far)
            back.join()

    def accept() -> None:
        relays = []
        with suppress(OSError):
            while True:
                relays.append(threading.Thread(target=relay, args=(listening.accept()[0],), daemon=True))
                relays[-1].start()
        for each in relays:
            each.join()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_postgres_is_reached_or_says_what_is_wrong(dsn: str) -> None:
    given = conninfo_to_dict(dsn)
    with relayed(f"{given['host']}/.s.PGSQL.{given.get('port') or 5432}") as port:
        body = {
            "type": "postgres", "host": "127.0.0.1", "port": port, "database": given["dbname"], "username": given["user"],
            "password": SECRET,
        }  # fmt: skip
        reached = tried(body)
        assert reached.reason is None, reached
        assert reached.detail.startswith("Postgres ")
        assert tried({**body, "database": "none_of_that_name"}).reason == "not_found"
        assert tried({**body, "username": "nobody_of_that_name"}).reason == "authentication"
        assert tried({**body, "tls": {}}).reason == "tls"


@contextmanager
def asking_for_passwords() -> Iterator[tuple[int, list[bytes]]]:
    """A server in Postgres's protocol that asks for the password and refuses it with an error that repeats it."""
    given: list[bytes] = []

    def message(kind: bytes, body: bytes) -> bytes:
        return kind + struct.pack("!I", len(body) + 4) + body

    def serve() -> None:
        with suppress(OSError):
            while True:
                with listening.accept()[0] as client:
                    if not client.recv(4_096):
                        continue  # the check's own look at the port
                    client.sendall(message(b"R", struct.pack("!I", 3)))
                    given.append(client.recv(4_096)[5:-1])
                    said = b'password authentication failed for user "' + given[-1] + b'"'
                    client.sendall(message(b"E", b"SFATAL\0VFATAL\0C28P01\0M" + said + b"\0\0"))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1], given
        listening.shutdown(socket.SHUT_RDWR)


def test_a_wrong_password_is_said_and_not_repeated() -> None:
    with asking_for_passwords() as (port, given):
        body = {"type": "postgres", "host": "127.0.0.1", "port": port, "database": "d", "username": "u", "password": SECRET}
        assert tried(body).reason == "authentication"
        assert given == [SECRET.encode()]


def test_a_secret_that_is_not_there_is_said_and_nothing_is_asked() -> None:
    with answering(200) as (port, seen):
        url = f"http://127.0.0.1:{port}"
        assert tried(registry(url, token="env:SLACKWATER_SECRET_NONE")).reason == "secret_unavailable"
        assert tried(registry(url, token="file:none")).reason == "secret_unavailable"
        assert tried(registry(url, token=SECRET), SecretSources(SecretKeys("o" * 32))).reason == "secret_unavailable"
        assert tried(registry(url, token=SECRET), SecretSources()).reason == "secret_unavailable"
        assert seen == []

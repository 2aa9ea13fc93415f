"""Results in a Delta table of a bucket, by a stored connection: each once, whatever ended where; its secrets are seen nowhere."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import polars as pl
import pytest
from deltalake import DeltaTable

from app.catalog.connections.sql import put_connection, users_of
from app.db.database import single_transaction
from app.http.requests.conditions import Preconditions
from engine.connections.keys import SecretKeys
from engine.connections.kinds import read_connection
from engine.connections.s3 import forget_own_credentials
from engine.connections.secret_sources import SecretSources
from engine.definition.deliveries.delta import DeltaDelivery
from engine.deliveries.deliveries import Deliverer, DeliveryContext, DeliveryStopped, TargetUnavailable
from engine.deliveries.delta.delivery import DELTA_DELIVERY
from engine.errors import DefinitionInvalid
from tests.integration.delivering import definition, forking, make, processes
from tests.object_store import BUCKET, CREDENTIALS, ObjectServer, Trouble, object_server
from tests.unit.deliveries.results import result, rows

KEY = "k" * 32
SECRET = CREDENTIALS["AWS_SECRET_ACCESS_KEY"]


@pytest.fixture(scope="module")
def running() -> Iterator[ObjectServer]:
    with object_server() as server:
        yield server


@pytest.fixture
def server(running: ObjectServer, empty_migrated: str) -> Iterator[ObjectServer]:
    """The server, which the connection ``lake`` leads to."""
    running.tokens.clear()
    put(empty_migrated, "lake", bucket(running))
    yield running
    running.trouble = Trouble()


@pytest.fixture
def site(empty_migrated: str) -> DeliveryContext:
    return DeliveryContext(empty_migrated, None, SecretSources(SecretKeys(KEY)))


def bucket(server: ObjectServer, **changed: Any) -> dict[str, Any]:
    endpoint, user = server.environment["AWS_ENDPOINT"], CREDENTIALS["AWS_ACCESS_KEY_ID"]
    said = {"type": "s3", "bucket": BUCKET, "endpoint": endpoint, "access_key_id": user, "secret_access_key": SECRET}
    return said | changed


def put(dsn: str, name: str, body: dict[str, Any]) -> None:
    with single_transaction(dsn) as transaction:
        put_connection(transaction, name, read_connection(body), SecretKeys(KEY), Preconditions())


def said(path: str | None = None, **more: Any) -> DeltaDelivery:
    body = {"type": "delta", "connection": "lake", "path": path or f"lake/t{uuid4().hex}", "every": "0s", **more}
    return DeltaDelivery.model_validate(body)


def opened(wanted: DeltaDelivery, site: DeliveryContext, number: int = 1) -> Deliverer:
    return DELTA_DELIVERY.open(wanted, result(number=number), site)


def read(server: ObjectServer, path: str) -> pl.DataFrame:
    """Read a table as others do, who are told the usual variables."""
    options = {name.lower(): value for name, value in server.environment.items()}
    table = DeltaTable(f"s3://{BUCKET}/{path}", storage_options={**options, "aws_endpoint_url": options["aws_endpoint"]})
    return pl.read_delta(table).sort("_sequence")


def test_rows_are_there_once_in_order_with_the_position(server: ObjectServer, site: DeliveryContext) -> None:
    wanted = said(partition_by="date")
    first = opened(wanted, site)
    assert first.position() is None
    first.deliver(rows(0, 5), 0, 5)
    first.deliver(rows(5, 30), 5, 30)
    assert opened(wanted, site).position() == 30
    assert opened(wanted, site, number=2).position() is None, "another delivery"
    frame = read(server, wanted.path)
    assert frame["_sequence"].to_list() == frame["price"].to_list() == [*range(30)]
    assert {*frame["_date"]} == {"1970-01-01", "1970-01-02"}


def test_of_processes_with_the_same_rows_one_delivers_them(server: ObjectServer, site: DeliveryContext) -> None:
    wanted = said()
    for start, upto in ((0, 3), (3, 6)):  # the first makes the table
        several = [opened(wanted, site) for _ in range(4)]
        assert {each.position() for each in several} == {start or None}
        refused: list[TargetUnavailable] = []
        server.trouble = Trouble(delay_s=0.05)  # so that all of them have looked before one has written

        def deliver(one: Deliverer, start: int = start, upto: int = upto, refused: list[TargetUnavailable] = refused) -> None:
            try:
                one.deliver(rows(start, upto), start, upto)
            except TargetUnavailable as error:
                refused.append(error)

        threads = [threading.Thread(target=deliver, args=(each,)) for each in several]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert len(refused) == len(several) - 1
    assert read(server, wanted.path)["price"].to_list() == [*range(6)]


@pytest.mark.parametrize("trouble", [Trouble(is_away=True), Trouble(failures=1_000)], ids=["away", "failing"])
def test_a_bucket_that_is_away_is_waited_for_and_no_secret_is_told(
    server: ObjectServer, site: DeliveryContext, trouble: Trouble
) -> None:
    wanted = said()
    target = opened(wanted, site)
    assert target.position() is None
    server.trouble = trouble
    texts = []
    for step in (target.position, lambda: target.deliver(rows(0, 2), 0, 2), lambda: DELTA_DELIVERY.check(wanted, result(), site)):
        with pytest.raises(TargetUnavailable) as caught:
            step()
        texts.append(f"{caught.value} {caught.value.__cause__!r} {target!r} {site!r}")
    assert SECRET not in "".join(texts)
    assert "\x1b" not in "".join(texts)
    server.trouble = Trouble()
    assert target.position() is None
    target.deliver(rows(0, 2), 0, 2)
    assert read(server, wanted.path)["price"].to_list() == [0, 1]


def test_who_may_not_write_is_told_what_to_allow(server: ObjectServer, site: DeliveryContext) -> None:
    target = opened(said(), site)
    server.trouble = Trouble(failures=1_000, status=403)
    with pytest.raises(DeliveryStopped, match="let its key list the bucket, and read and put objects") as caught:
        target.position()
    assert caught.value.reason == "delivery_refused"


def test_what_is_wrong_with_a_connection_is_told_at_its_field(
    server: ObjectServer, site: DeliveryContext, empty_migrated: str
) -> None:
    put(empty_migrated, "broker", {"type": "kafka", "bootstrap": "127.0.0.1:1"})
    put(empty_migrated, "nowhere", bucket(server, bucket="no-such-bucket"))
    put(empty_migrated, "unknown", bucket(server, secret_access_key="env:SLACKWATER_SECRET_UNSET"))
    for name, code in (
        ("none", "connection_missing"),
        ("broker", "connection_of_another_type"),
        ("nowhere", "bucket_not_writable"),
    ):
        wanted = said(connection=name)
        with pytest.raises(DefinitionInvalid) as caught:
            DELTA_DELIVERY.check(wanted, result(), site)
        assert [(each.pointer, each.code) for each in caught.value.problems] == [("/into/connector/connection", code)]
    for name in ("none", "broker"):
        with pytest.raises(DeliveryStopped, match=name):
            opened(said(connection=name), site)
    for step in (DELTA_DELIVERY.check, DELTA_DELIVERY.open):
        with pytest.raises(TargetUnavailable, match="SLACKWATER_SECRET_UNSET is not set"):
            step(said(connection="unknown"), result(), site)
    DELTA_DELIVERY.check(said(), result(), site)


@pytest.mark.parametrize("path", ["/lake", "lake/", "a//b", "../x", "a/../b", "a/.", "a b", "a?b", "a%2fb", "ä"])
def test_a_path_that_a_bucket_may_read_otherwise_is_refused(path: str) -> None:
    assert [each.pointer for each in said(path).faults((), (), is_table=False)] == ["/into/connector/path"]
    plain = DeltaDelivery.model_validate({"type": "delta", "path": path})
    assert list(plain.faults((), (), is_table=False)) == [], "of directories the file system judges"
    assert "connection" not in plain.model_dump(mode="json"), "deliveries of before go on"


def test_each_result_is_delivered_once_wherever_a_process_is_killed_and_no_token_of_the_services_own_is_sent(
    server: ObjectServer, empty_migrated: str, tmp_path: Path
) -> None:
    own = {
        "AWS_SESSION_TOKEN": "of-the-services-own",
        "AWS_S3_LOCKING_PROVIDER": "dynamodb",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    }
    wanted, owner = said(), uuid4()
    query = make(empty_migrated, definition("out", wanted.model_dump(mode="json")))
    with single_transaction(empty_migrated) as transaction:
        assert users_of(transaction, "lake") == ["out"]
    with (
        forking(tmp_path / "deliveries.log") as forked,
        processes(forked, empty_migrated, tmp_path, SLACKWATER_SECRET_KEY=KEY, **own) as delivering,
    ):
        for point in ("planned", "delivered", "noted"):
            query.commit(7)
            delivering.await_end(delivering.start(point, owner))
        query.commit(3)
        delivering.start("-", owner)
        query.wait()
    assert read(server, wanted.path)["price"].to_list() == [*range(query.rows)]
    assert server.tokens == set()
    assert SECRET not in (tmp_path / "deliveries.log").read_text()


def test_only_what_clients_of_s3_read_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE", "SLACKWATER_SECRET_AWS", "LAWS_X"):
        monkeypatch.setenv(name, "x")
    forget_own_credentials()
    assert [name for name in os.environ if "AWS" in name] == ["SLACKWATER_SECRET_AWS", "LAWS_X"]

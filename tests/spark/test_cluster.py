"""A standalone cluster gives what an undisturbed run gives, also when an executor or the driver is killed; nothing of it stays behind."""

from __future__ import annotations

import json
import random
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest
from slackwater import Client, Json

from app.driver.supervisor.process_group import end_session, session_members
from app.testing.machines.service import command_of
from tests.faults.service import Feeder, Service, service, until
from tests.faults.stages import NAMES, QUERIES, SOURCES, Request, body, found, requests, undisturbed
from tests.object_store import BUCKET, object_server
from tests.spark.cluster import AUTH_SECRET, COMPOSED, Cluster, cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

QUIET_S = 240.0
LOG_BYTES = 100_000
WORKER_OPTIONS = re.sub(
    r"(rolling\.maxSize)=\d+",
    rf"\1={LOG_BYTES}",
    COMPOSED["SPARK_WORKER_OPTS"],
)
"""Those of docker-compose.yml, with a smaller bound for an executor's log."""


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster on whose hosts another Slackwater is installed, one that nothing may import."""
    other = tmp_path_factory.mktemp("installed")
    (other / "engine").mkdir()
    (other / "engine" / "__init__.py").write_text("raise ImportError('an executor took the code that its host has')")
    environment = {"PYTHONPATH": str(other), "SPARK_WORKER_OPTS": WORKER_OPTIONS}
    with cluster(tmp_path_factory.mktemp("cluster"), environment) as running:
        yield running


def settings(standalone: Cluster, shared: Path, **more: str) -> dict[str, str]:
    return {
        "SLACKWATER_SPARK__MASTER": standalone.url,
        "SLACKWATER_SPARK__EXECUTOR_MEMORY": "512m",
        "SLACKWATER_SPARK__DRIVER_HOST": "127.0.0.1",
        "SLACKWATER_SPARK__AUTH_SECRET": AUTH_SECRET,
        "SLACKWATER_CHECKPOINT_URL": shared.as_uri(),
        **more,
    }


def runs(client: Client, above: dict[str, int]) -> bool:
    """Whether every query runs in a later launch than before."""
    statuses = [client.query(name).status() for name in NAMES]
    return all(status["state"] == "running" and status["epoch"] > above[status["name"]] for status in statuses)


def epochs(client: Client) -> dict[str, int]:
    return {name: client.query(name).status()["epoch"] for name in NAMES}


def newest(client: Client) -> dict[str, tuple[int, int]]:
    """Return launch and newest batch of every query, -1 before the first."""
    statuses = (client.query(name).status() for name in NAMES)
    return {each["name"]: (each["epoch"], -1 if each["batch_id"] is None else each["batch_id"]) for each in statuses}


def is_read(client: Client) -> bool:
    """Whether every query has read everything, what the ones before it wrote included."""
    feeds = [feed for name in NAMES for feed in client.query(name).status()["progress"]]
    return not any(partition["lag"] for feed in feeds for partition in feed["partitions"])


def start(running: Service, client: Client, sent: Iterable[Request]) -> Feeder:
    """Register everything and begin to send."""
    for name, (kind, definition) in SOURCES.items():
        client.relation(kind, name).register(definition)
    for query in QUERIES:
        client.queries.put(query)
    until("all queries run", partial(runs, client, dict.fromkeys(NAMES, 0)), QUIET_S)
    feeder = Feeder(running.url, ((SOURCES[name][0], name, body(records)) for name, records in sent), pause_s=0.1)
    feeder.start()
    return feeder


def differences(client: Client, feeder: Feeder, sent: list[Request]) -> dict[str, list[str]]:
    """Wait until everything was read; say what came out otherwise than in an undisturbed run."""
    expected = undisturbed(sent)
    until("everything was acknowledged", lambda: feeder.is_done, QUIET_S)
    until("everything was read", partial(is_read, client), QUIET_S)
    return {name: sorted(rows ^ expected[name]) for name, rows in found(client).items() if rows != expected[name]}


def test_queries_of_several_stages_are_exact_on_a_cluster_that_loses_an_executor(standalone: Cluster, tmp_path: Path) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    sent = requests(random.Random(seed))
    with service(settings(standalone, tmp_path / "shared")) as running, Client(running.url, timeout=20) as client:
        feeder = start(running, client, sent)
        before, launched = {each.pid for each in standalone.executors()}, epochs(client)
        assert len(before) == 2
        until("a third was sent", lambda: feeder.acknowledged > len(sent) / 3, QUIET_S)
        until("every query has committed", lambda: all(batch >= 0 for _, batch in newest(client).values()), QUIET_S)
        killed, killed_at, batches = standalone.kill_executor(), time.monotonic(), newest(client)
        until("every query committed again", lambda: all(newest(client)[name] > batches[name] for name in NAMES), QUIET_S)
        gap_s = time.monotonic() - killed_at
        until("another executor came", lambda: len({each.pid for each in standalone.executors()} - {killed}) == 2, QUIET_S)
        assert differences(client, feeder, sent) == {}
        assert runs(client, dict.fromkeys(NAMES, 0))
        print(f"killed {killed}, all queries committed again after {gap_s:.1f} s; epochs {launched} -> {epochs(client)}")
    assert list((tmp_path / "shared").glob("*/*/segments/*/*/*.arrow")) != []
    until("no executor and no worker of Python is left", lambda: not standalone.executors() + standalone.python_workers(), 60)


def test_a_killed_driver_leaves_no_executor_behind_and_its_successor_goes_on(standalone: Cluster, tmp_path: Path) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    sent = requests(random.Random(seed))
    with service(settings(standalone, tmp_path / "shared")) as running, Client(running.url, timeout=20) as client:
        feeder = start(running, client, sent)
        before, above = standalone.executors() + standalone.python_workers(), epochs(client)
        until("a third was sent", lambda: feeder.acknowledged > len(sent) / 3, QUIET_S)
        running.kill_driver()
        psutil.wait_procs(before, timeout=QUIET_S)
        assert not [each for each in before if each.is_running()]
        until("all queries were launched again", partial(runs, client, above), QUIET_S)
        assert differences(client, feeder, sent) == {}
    until("no executor and no worker of Python is left", lambda: not standalone.executors() + standalone.python_workers(), 60)


NOTES: Json = {"k": "string", "n": "bigint", "note": "string", "at": "bigint"}
NOTED: Json = {
    "name": "noted", "from": {"stream": "notes"}, "group_by": ["k"], "tasks": 2,
    "aggregate": {"notes": "count(*)", "total": "sum(n)", "note": "max(note)"}, "into": {"table": "noted"},
}  # fmt: skip


def test_workers_that_share_no_directory_keep_state_in_objects(tmp_path: Path) -> None:
    """On this machine they could see the driver's: so it is looked at what lies there."""
    chance = random.Random(7)
    (tmp_path / "cluster").mkdir()
    with object_server() as store, cluster(tmp_path / "cluster", store.environment) as standalone:
        own = {
            "SLACKWATER_STATE_URL": f"s3://{BUCKET}/state",
            "SLACKWATER_STATE_CACHE_DIR": str(tmp_path / "copies"),
            **store.environment,
        }
        given = {name: value for name, value in settings(standalone, tmp_path).items() if name != "SLACKWATER_CHECKPOINT_URL"}
        with service({**given, **own}) as running, Client(running.url, timeout=20) as client:
            log = {"type": "log", "partitions": 2}
            client.stream("notes").register({"key": ["k"], "columns": NOTES, "event_time": "at", "connector": log})
            client.queries.put(NOTED)
            expected: dict[str, tuple[int, int, str]] = {}
            for number in range(400):
                key, note = f"k{chance.randrange(40)}", chance.randbytes(1_000).hex()
                count, total, longest = expected.get(key, (0, 0, ""))
                expected[key] = count + 1, total + number, max(longest, note)
                client.stream("notes").append(json.dumps({"k": key, "n": number, "note": note, "at": 1_000 + number}).encode())
            rows = lambda: {row["k"]: (row["notes"], row["total"], row["note"]) for row in client.table("noted").each_row()}  # noqa: E731
            until("everything is counted", lambda: rows() == expected, QUIET_S)
            assert {path.name for path in (running.data_dir / "checkpoints").rglob("*") if path.is_file()} <= {
                "root.json", "database.json", "planned"
            }  # fmt: skip
            assert any(path.endswith(".arrow") for method, path in store.requests if method == "PUT")


COPY: Json = {"name": "copy", "from": {"stream": "orders"}, "into": {"stream": "copy"}}


def error_of_a_launch(standalone: Cluster, shared: Path, **more: str) -> Json:
    """Return why a query is being retried."""
    with service(settings(standalone, shared, **more)) as running, Client(running.url, timeout=20) as client:
        client.stream("orders").register(SOURCES["orders"][1])
        client.queries.put(COPY)
        error: Json | None = until("a launch has failed", lambda: client.query("copy").status()["error"], QUIET_S)
        assert error is not None
        return error


def test_workers_with_another_version_of_a_package_are_refused(tmp_path: Path) -> None:
    described = tmp_path / "installed" / "polars-0.1.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: polars\nVersion: 0.1\n")
    (tmp_path / "cluster").mkdir()
    with cluster(tmp_path / "cluster", {"PYTHONPATH": str(tmp_path / "installed")}) as running:
        error = error_of_a_launch(running, tmp_path / "shared")
    assert error["code"] == "workers_unfit"
    assert "polars 0.1 instead of" in error["detail"]


def test_a_cluster_without_room_is_named_as_such_instead_of_waited_for(standalone: Cluster, tmp_path: Path) -> None:
    error = error_of_a_launch(standalone, tmp_path / "shared", SLACKWATER_SPARK__EXECUTOR_MEMORY="64g")
    assert error["code"] == "cluster_busy"
    assert "64g" in error["detail"]


JOB = """
import sys
from pathlib import Path
from engine.spark.cluster import ClusterSettings
from engine.spark.session import SparkSettings, session_of

if __name__ == "__main__":
    cluster = ClusterSettings(executor_memory="512m", driver_host="127.0.0.1", auth_secret=sys.stdin.readline().strip() or None)
    with session_of(SparkSettings(data_dir=Path(sys.argv[1]), master=sys.argv[2], driver_memory="512m", cluster=cluster)) as spark:
        print("counted", spark.sparkContext.parallelize(range(3), 2).count(), flush=True)
        sys.stdin.readline()
"""


def job(standalone: Cluster, directory: Path, secret: str) -> subprocess.Popen[str]:
    """Start an application that works, with this secret, and waits for a line before it ends."""
    (directory / "job.py").write_text(JOB)
    command = [sys.executable, str(directory / "job.py"), str(directory / "data"), standalone.url]
    started = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    assert started.stdin is not None
    started.stdin.write(f"{secret}\n")
    started.stdin.flush()
    return started


def end(started: subprocess.Popen[str]) -> None:
    assert end_session(started.pid, 15)
    started.wait()
    for stream in (started.stdin, started.stdout):
        assert stream is not None
        stream.close()


def test_the_secret_of_the_cluster_is_in_no_command_and_no_file(standalone: Cluster, tmp_path: Path) -> None:
    started = job(standalone, tmp_path, AUTH_SECRET)
    try:
        assert started.stdout is not None
        assert any(line == "counted 3\n" for line in iter(started.stdout.readline, ""))
        running = [*standalone.processes(), *map(psutil.Process, session_members(started.pid))]
        assert len(standalone.executors()) == 2
        assert not [command_of(each) for each in running if AUTH_SECRET in command_of(each)]
    finally:
        end(started)
    written = [path for root in (standalone.directory, tmp_path) for path in root.rglob("*") if path.is_file()]
    assert not [path for path in written if AUTH_SECRET.encode() in path.read_bytes()]


@pytest.mark.parametrize("secret", ["", "f" * 64])
def test_who_does_not_know_the_secret_gets_nothing_from_the_cluster(secret: str, standalone: Cluster, tmp_path: Path) -> None:
    started = job(standalone, tmp_path, secret)
    try:
        said = started.communicate(timeout=QUIET_S)[0]
    finally:
        end(started)
    assert "counted" not in said
    assert started.returncode != 0
    assert standalone.executors() == []

"""A real broker for tests: Apache Kafka with one node (KRaft, broker and controller in one), from the jars of Maven Central alone.

It needs Java 17 and Maven; ``why_not`` says what is missing. The jars are fetched once per user. The broker has ports and a directory
of its own, so that several can run beside each other, and may be killed and started again on the same data.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

VERSION: Final = "4.3.1"
START_S: Final = 90
STOP_S: Final = 60
HEAP: Final = "384m"

_POM: Final = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
  <groupId>tests</groupId><artifactId>broker</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""

_READY: Final = "Kafka Server started"


def why_not() -> str | None:
    """Say why there can be no broker here; None: there can."""
    missing = [program for program in ("java", "mvn") if shutil.which(program) is None]
    return f"a Kafka broker needs Java and Maven; there is no {' and no '.join(missing)}" if missing else None


def jars() -> Path:
    """Return the directory of the broker's jars, which the first caller fetches.

    Raises:
        RuntimeError: Maven cannot fetch them; the text has the end of what it says.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slackwater-tests"
    found = cache / f"kafka-{VERSION}"
    if found.is_dir():
        return found
    cache.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix="kafka-", dir=cache))
    (draft / "pom.xml").write_text(_POM)
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={draft / 'jars'}"]
    done = subprocess.run(command, cwd=draft, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(f"Maven cannot fetch Kafka's jars: {(done.stdout + done.stderr)[-600:]}")
    try:
        (draft / "jars").rename(found)
    except OSError:
        if not found.is_dir():  # another process was quicker
            raise
    shutil.rmtree(draft, ignore_errors=True)
    return found


@dataclass
class Broker:
    """A broker's directory, ports and process.

    Attributes:
        home: its directory.
        lines: of ``server.properties``, beside or instead of the usual ones.
        heap: of its JVM.
        listeners: further ones: name → protocol and port.
        advertised: the port that clients are told of, where something stands before it.
        java_options: of its JVM, beside the usual ones.
    """

    home: Path
    lines: dict[str, str] = field(default_factory=dict)
    heap: str = HEAP
    listeners: dict[str, tuple[str, int]] = field(default_factory=dict)
    advertised: int | None = None
    java_options: tuple[str, ...] = ()
    port: int = field(init=False)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.port, self._controller = free_ports(2)

    @property
    def bootstrap(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Of its process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, on the data that is there, and wait until it says that it is ready.

        Raises:
            RuntimeError: it does not come up; the text has the end of its log.
        """
        self._configure()
        if not (self.home / "data" / "meta.properties").exists():
            self._run("kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", str(self._properties))
        log = self.home / "broker.log"
        with log.open("wb") as out:
            self._process = subprocess.Popen(self._java(self.heap, "kafka.Kafka", str(self._properties)), stdout=out, stderr=out)
        end = time.monotonic() + START_S
        while _READY not in log.read_text(errors="replace") or not _listens(self.port):
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the broker does not start: {log.read_text(errors='replace')[-800:]}")
            time.sleep(0.1)

    def kill(self) -> None:
        """End it as a power cut does."""
        self._signal(signal.SIGKILL)

    def stop(self) -> None:
        """End it in order."""
        self._signal(signal.SIGTERM)

    def lose(self, topic: str, partition: int = 0) -> None:
        """Delete what it has of a partition while it does not run: as one that lacks the newest records and becomes the leader all the same."""
        shutil.rmtree(self.home / "data" / f"{topic}-{partition}")
        for checkpoint in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint"):
            (self.home / "data" / checkpoint).unlink(missing_ok=True)

    def freeze(self) -> None:
        """Let its connections stay open and say nothing any more."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Go on after ``freeze``."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        if number is not signal.SIGKILL:
            self._process.send_signal(signal.SIGCONT)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_S)
        self._process = None

    @property
    def _properties(self) -> Path:
        return self.home / "server.properties"

    def _configure(self) -> None:
        named = "".join(f",{name}://127.0.0.1:{port}" for name, (_, port) in self.listeners.items())
        protocols = "".join(f",{name}:{protocol}" for name, (protocol, _) in self.listeners.items())
        usual = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self._controller}{named}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.advertised or self.port}{named}",
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{protocols}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.home / "data"),
            "num.partitions": "1",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "false",
            "log.retention.ms": "-1",
            "log.retention.check.interval.ms": "500",
            "log.message.timestamp.after.max.ms": "9223372036854775807",
        }
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in {**usual, **self.lines}.items()))

    def _java(self, heap: str, *arguments: str) -> list[str]:
        quiet = (
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
        )
        return ["java", f"-Xmx{heap}", "-XX:+UseSerialGC", *quiet, *self.java_options, "-cp", f"{jars()}/*", *arguments]

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(self._java("128m", *arguments), capture_output=True, text=True, timeout=START_S, check=False)
        if done.returncode:
            raise RuntimeError(f"{arguments[0]} fails: {(done.stdout + done.stderr)[-600:]}")


@contextmanager
def running(
    lines: dict[str, str] | None = None,
    heap: str = HEAP,
    listeners: dict[str, tuple[str, int]] | None = None,
    java_options: tuple[str, ...] = (),
) -> Iterator[Broker]:
    """Run a broker for the length of the block, on data of its own; for the arguments see ``Broker``."""
    home = Path(tempfile.mkdtemp(prefix="slackwater-kafka-"))
    broker = Broker(home, lines or {}, heap, listeners or {}, java_options=java_options)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()
        shutil.rmtree(home, ignore_errors=True)


def free_ports(count: int) -> list[int]:
    """Return ports on which nobody listens now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 0.5).close()
    except OSError:
        return False
    return True

"""The driver's one Spark session, with every setting that was measured to matter.

All files are below ``data_dir``: the warehouse, scratch files, working copies of state stores and the JVM's temporary files are in
``<data_dir>/spark``.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from tempfile import gettempdir
from typing import Any
from uuid import uuid4

import psutil
import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from engine.processes.python_processes import SAFE_PATH_VARIABLE, WORKER, make_children_safe
from engine.spark.cluster import ClusterSettings, cluster_conf, code_archive, is_cluster
from engine.spark.fork_server import start_fork_server
from engine.spark.java import Java, archive_of, find_java, launchable_home

JAR = Path(__file__).parent / "jars" / "slackwater.jar"
"""Our own classes for the JVM; ``make jar`` compiles them from ``java``."""

LOG_SETTINGS = JAR.with_name("log4j2.properties")

_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC -XX:-UsePerfData -Xss2m"
"""The JVM moves bytes, so the second compiler costs more than it wins. For five million records the CPU is 13 s instead of 21 s in a fresh
JVM, 7 s instead of 10 s in a warm one. The default collector costs more because little memory is live: 3.2 and 4.1 s instead of 2.8 and 3.0.
Performance data would be a file in the system's temporary folder. Spark plans by recursion, and the frames of the first compiler are
large: with the default stack of a megabyte a stream's thread once overflowed."""

_YOUNG_MIB = 192
"""Part of the heap for short-lived objects. By default the JVM fills a third of the heap before it collects: twenty light queries left
1.1 GB there, with this bound 0.1 GB, at the same CPU. In a small heap it is a quarter, because Spark needs most of the heap outside of it."""

_SLOTS_PER_CORE = 2
"""A light query's tasks mostly wait for processes. They need room beside the tasks of a slow batch."""

_MAX_ADDRESS_BYTES = 107
"""Longest address of a Unix domain socket in Linux."""

_SOCKET_NAME_BYTES = len(f"/.{uuid4()}.sock")
"""Length of the names of sockets that Spark opens for its Python processes."""


_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # The oldest batch runs first, so that each runs at some time. Fair pools that run nothing are served by name, and the last ones starved.
    "spark.scheduler.mode": "FIFO",
    "spark.sql.session.timeZone": "UTC",
    # No launch reads Spark's records of an earlier launch.
    "spark.sql.streaming.minBatchesToRetain": "2",
    # The source itself waits for records; an answer without records comes after a long wait.
    "spark.sql.streaming.pollingDelay": "1ms",
    "spark.sql.streaming.metricsEnabled": "false",
    # Spark handles a few packets a batch. Code generation, checks of every planner step and replanning by the results of a
    # stage cost more than they win: 0.6 s of CPU until the first batch, a tenth of every later one.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    # A packet is a row of up to tens of MB: few rows, many bytes.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1024",
    "spark.driver.maxResultSize": "0",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 * 1024 * 1024),
    # When twenty workers started at once, they took longer than the 15 s that Spark gives them to call back.
    "spark.python.authenticate.socketTimeout": "120s",
    **{f"spark.executorEnv.{name}": value for name, value in WORKER.items()},
    f"spark.executorEnv.{SAFE_PATH_VARIABLE}": "1",
    "spark.hadoop.fs.file.impl": "slackwater.LocalFiles",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "slackwater.LocalFilesContext",
}


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The settings of the session.

    Attributes:
        data_dir: everything Spark writes goes to ``spark`` below it.
        master: such as ``local[2]`` or ``spark://host:7077``.
        driver_memory: heap of the JVM, such as ``2g``.
        shuffle_partitions: how many tasks may work at once.
        app_name: shown by a cluster's master.
        cluster: used if the master is a cluster's.
        class_dir: folder of the class archive and the links to Spark's jars; None: ``spark`` below ``data_dir``. Services may share one.
        archive_to: the JVM writes its classes there when it ends, and uses no archive.
    """

    data_dir: Path
    master: str = "local[2]"
    driver_memory: str = "2g"
    shuffle_partitions: int = 2
    app_name: str = "slackwater"
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    class_dir: Path | None = None
    archive_to: Path | None = None


def import_source() -> Any:
    """Import the module of our source, and with it most of the engine, while a JVM starts. Return the module."""
    return import_module("engine.spark.streams.scheduling")


def register_source(session: SparkSession) -> None:
    """Register our source in the session."""
    session.dataSource.register(import_source().PacketSource)


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a session needs beside its JVM.

    Attributes:
        home: Spark's folder.
        scratch: this process's own directory in it.
    """

    java: Java
    home: Path
    scratch: Path


def prepare_session(settings: SparkSettings) -> Prepared:
    """Find Java, start the fork server of Spark's Python processes, and set ``JAVA_HOME`` and ``PYSPARK_PYTHON`` of this process.

    Raises:
        JavaMissing: no usable Java.
    """
    home = (settings.data_dir / "spark").resolve()
    scratch = _scratch(home)
    java = find_java()
    # The JVM passes the variable to every Python that it starts.
    make_children_safe()
    os.environ["JAVA_HOME"] = str(launchable_home(java, home))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if settings.master.startswith("local") and sys.platform == "linux":
        os.environ["PYSPARK_PYTHON"] = str(start_fork_server(scratch).executable)
    return Prepared(java, home, scratch)


def start_session(settings: SparkSettings, prepared: Prepared | None = None) -> SparkSession:
    """Start the JVM and return the session. One per process; sets variables of this process.

    Args:
        settings: of the session.
        prepared: made with the same settings; None: made here.

    Raises:
        JavaMissing: no usable Java.
    """
    prepared = prepared or prepare_session(settings)
    os.environ["SPARK_HOME"] = str(_spark_home(settings))
    # Spark's scripts read these from the environment and would run with other settings.
    for name in ("SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS"):
        os.environ.pop(name, None)
    options = {
        "spark.master": _slots(settings.master),
        "spark.app.name": settings.app_name,
        **_SETTINGS,
        **_places(prepared, f"{_archive_option(settings, prepared.java)} {_young(settings.driver_memory)}"),
        **_executors(settings),
        **python_sockets(None if is_cluster(settings.master) else prepared.scratch),
        "spark.driver.memory": settings.driver_memory,
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
    }
    # Every user of the machine can read the JVM's command, and so its options.
    SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(options.items())))  # noqa: SLF001
    builder = SparkSession.builder
    for name, value in {**options, **_secrets(settings)}.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    open_callback_port(session.sparkContext._gateway)  # noqa: SLF001 - PySpark names it nowhere else
    if is_cluster(settings.master):
        session.sparkContext.addPyFile(str(code_archive(prepared.scratch)))
    return session


@contextmanager
def session_of(settings: SparkSettings) -> Iterator[SparkSession]:
    """Start a session with our source registered; stop it and its JVM at the end."""
    session = start_session(settings)
    register_source(session)
    gateway = session.sparkContext._gateway  # noqa: SLF001 - PySpark offers no other way to end the JVM
    try:
        yield session
    finally:
        session.stop()
        if gateway is not None:
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait()


def class_archive(settings: SparkSettings, java: Java) -> Path:
    """Return the path of the class archive for this session's JVM, whether it exists or not."""
    spark_home = _spark_home(settings)
    return archive_of(spark_home.parent, java, _JVM, [JAR, *(spark_home / "jars").iterdir()])


def _archive_option(settings: SparkSettings, java: Java) -> str:
    if settings.archive_to is not None:
        return f'"-XX:ArchiveClassesAtExit={settings.archive_to}"'
    archive = class_archive(settings, java)
    # -Xshare is auto: the JVM ignores an archive that it cannot map.
    return f'"-XX:SharedArchiveFile={archive}"' if archive.exists() else ""


def _young(memory: str) -> str:
    """Return the option that bounds the young generation of a heap such as ``2g``."""
    mib = int(memory[:-1]) * {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024**2}[memory[-1].lower()]
    return f"-XX:MaxNewSize={min(_YOUNG_MIB, int(mib / 4))}m"


def _places(prepared: Prepared, more: str) -> dict[str, str]:
    selectors = "-Djava.nio.channels.spi.SelectorProvider=slackwater.Selectors"
    jvm = f'{_JVM} {more} "-Djava.io.tmpdir={prepared.scratch}" {selectors} -Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}'
    return {
        "spark.sql.warehouse.dir": str(prepared.home / "warehouse"),
        "spark.local.dir": str(prepared.scratch),
        "spark.driver.extraClassPath": str(JAR),
        "spark.driver.extraJavaOptions": jvm,
        # Workers with the same image have this file too. Otherwise executors log about twenty lines for each task and batch.
        "spark.executor.extraJavaOptions": f"{_JVM} -Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}",
    }


def python_sockets(scratch: Path | None) -> dict[str, str]:
    """Return how the JVM and the Python processes connect: by sockets in the file system, where only this user may connect.

    Spark's other way is a port of the loopback interface for each result, which accepts one connection. If a stranger connects first, such as
    a client that looks for an earlier server at the same port, the batch waits for ever.

    Args:
        scratch: folder of the sockets if their paths are short enough. Otherwise, and for None, the system's temporary folder, which also
            exists on the hosts of a cluster.
    """
    for directory in filter(None, (scratch, Path(gettempdir()))):
        if len(os.fsencode(directory)) + _SOCKET_NAME_BYTES <= _MAX_ADDRESS_BYTES:
            return {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": str(directory)}
    return {}


def _executors(settings: SparkSettings) -> dict[str, str]:
    if is_cluster(settings.master):
        return cluster_conf(settings.cluster, JAR)
    # Everything is on this machine: no port is open to the outside, and no name has to resolve. Other users of the machine reach these
    # ports too, so Spark makes a secret for the session and does not share it.
    here = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.authenticate": "true"}
    cores = _cores(settings.master)
    return here if cores is None else {**here, "spark.default.parallelism": str(cores)}


def _secrets(settings: SparkSettings) -> dict[str, str]:
    """Return the settings for the JVM's authenticated gateway, once it runs. On this machine Spark makes a secret by itself."""
    secret = settings.cluster.auth_secret if is_cluster(settings.master) else None
    return {} if secret is None else {"spark.authenticate.secret": secret}


def _cores(master: str) -> int | None:
    """Return N of ``local[N]``; None for other masters."""
    found = re.fullmatch(r"local\[(\d+)\]", master)
    return int(found[1]) if found is not None else None


def _slots(master: str) -> str:
    """Return Spark's name of a master: Spark runs as many tasks at once as this name has cores."""
    cores = _cores(master)
    return master if cores is None else f"local[{cores * _SLOTS_PER_CORE}]"


def _spark_home(settings: SparkSettings) -> Path:
    """Return a SPARK_HOME that is the installed package without its ``python`` folder.

    With that folder Spark lets workers import PySpark from a zip, which has no bytecode: 0.55 s of CPU for each of the five
    Python processes of a query, half the time of a start. Without it they import the installed package, which is the same.
    """
    installed = Path(pyspark.__file__).resolve().parent
    home = (settings.class_dir or settings.data_dir / "spark").resolve()
    spark_home = home / f"home-{pyspark.__version__}"
    spark_home.mkdir(parents=True, exist_ok=True)
    for name in ("bin", "jars"):
        link = spark_home / name
        if link.is_symlink() and link.readlink() == installed / name:
            continue
        draft = spark_home / f".{name}-{uuid4().hex}"  # other containers have the same process ids
        draft.symlink_to(installed / name)
        draft.replace(link)
    return spark_home


def _scratch(home: Path) -> Path:
    """Make this process's scratch directory, and remove those of this host's killed processes."""
    home.mkdir(parents=True, exist_ok=True)
    prefix = f"scratch-{socket.gethostname()}-"
    scratch = home / f"{prefix}{os.getpid()}"
    for left in home.glob(f"{prefix}*"):
        if left == scratch or not psutil.pid_exists(int(left.name.removeprefix(prefix))):
            shutil.rmtree(left, ignore_errors=True)
    scratch.mkdir()
    return scratch


def open_callback_port(gateway: Any) -> None:
    """Open the port at which the JVM calls Python back before PySpark does; PySpark then uses it unchanged.

    PySpark opens this port without a token (``ensure_callback_server_started``). Any process of this machine could then call what the
    driver offers the JVM. Py4J checks a token on both sides, but its Java client loses the token when it learns the port
    (``PythonClient.copyWith`` of Py4J 0.10.9.9). Py4J has no call that puts another client into a running gateway, so reflection sets the
    token on the client that PySpark has installed.

    Args:
        gateway: of a ``SparkContext``, with no callbacks yet.
    """
    token = secrets.token_hex(32)
    gateway.callback_server_parameters.auth_token = token
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    field = getattr(gateway.jvm.java.lang, "Class").forName("py4j.CallbackClient").getDeclaredField("authToken")  # noqa: B009
    field.setAccessible(True)
    field.set(gateway.java_gateway_server.getCallbackClient(), token)

"""A Spark standalone cluster: extra settings of its sessions, the way of the engine's code to executors, the checks of its workers.

The code travels as Spark documents it for Python files. The driver serves an archive, and every executor puts it before its installed
packages, so driver and executors never run different code. Packages such as Polars do not travel; the workers have them installed.
"""

from __future__ import annotations

import py_compile
import time
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark import SparkContext

from engine.errors import ExternalError
from engine.runtime.failures import decoded, marked
from engine.runtime.worker_requirements import WorkerRequirements, WorkersUnfit, engine_sources

MASTER_SCHEME = "spark://"

AUTHENTICATED = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    "spark.network.crypto.authEngineVersion": "2",
}
"""Settings that the driver and the daemons of a cluster share: each proves that it knows the secret, and all traffic is encrypted.
Executors get them from the driver. The secret is not among them, because they are arguments of processes. Daemons read it from
``_SPARK_AUTH_SECRET``, and a worker passes it to executors in their environment."""

EXECUTORS_WITHIN_S = 60.0
"""A worker starts an executor within about five seconds, on a loaded machine within twenty."""

_POLL_S = 0.2


class ClusterBusy(ExternalError):
    """The cluster gives no executor: it has no worker, or no worker with enough free cores and memory."""

    code = "cluster_busy"


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The settings of a session on a cluster.

    Attributes:
        executor_memory: heap of each executor; its Python workers need more memory outside of it.
        executor_cores: cores of each executor; None: all cores of its worker.
        max_cores: cores of this driver over the whole cluster; None: all free cores, so a second driver would wait for ever.
        driver_host: name or address by which executors reach the driver; None: the host's own idea of its address.
        auth_secret: the cluster's; None: its processes trust each other and everyone who reaches their ports.
    """

    executor_memory: str = "1g"
    executor_cores: int | None = None
    max_cores: int | None = None
    driver_host: str | None = None
    auth_secret: str | None = field(default=None, repr=False)


def is_cluster(master: str | None) -> bool:
    """Whether a master's executors are other processes, perhaps on other hosts."""
    return master is not None and master.startswith(MASTER_SCHEME)


def cluster_conf(settings: ClusterSettings, jar: Path) -> dict[str, str]:
    """Return Spark's settings for a session on a cluster.

    Args:
        settings: ours.
        jar: classes that executors need; the driver serves it, because other hosts may have it elsewhere.
    """
    conf = {
        "spark.jars": str(jar),
        "spark.executor.memory": settings.executor_memory,
    }
    if settings.auth_secret is not None:
        conf |= AUTHENTICATED
    if settings.executor_cores is not None:
        conf["spark.executor.cores"] = str(settings.executor_cores)
    if settings.max_cores is not None:
        conf["spark.cores.max"] = str(settings.max_cores)
    if settings.driver_host is not None:
        conf["spark.driver.host"] = settings.driver_host
        # In a container, the name that executors use may stand for an address that is not this host's own.
        conf["spark.driver.bindAddress"] = settings.driver_host if is_loopback(settings.driver_host) else "0.0.0.0"  # noqa: S104
    return conf


def is_loopback(host: str) -> bool:
    """Whether a host names this machine. Every name but localhost counts as another machine's."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def code_archive(directory: Path) -> Path:
    """Write the engine's modules, with their bytecode, into an archive in this process's directory; return its path.

    Without bytecode each worker process would compile the modules: a second of CPU.
    """
    archive = directory / "slackwater-engine.zip"
    with TemporaryDirectory(dir=directory) as place, zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for name, source in engine_sources():
            target.writestr(name, source)
            target.writestr(f"{name}c", _bytecode(Path(place), name, source))
    return archive


def _bytecode(place: Path, name: str, source: bytes) -> bytes:
    """Compile a module; Python does not compare it with its source, because an archive stores times with a precision of two seconds."""
    module, compiled = place / "module.py", place / "module.pyc"
    module.write_bytes(source)
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(module), str(compiled), dfile=name, doraise=True, invalidation_mode=unchecked)
    return compiled.read_bytes()


def worker_requirements_of(context: SparkContext, scratch: Path | None) -> WorkerRequirements | None:
    """Return the requirements of workers on other hosts, after some of them have met these; None if all workers are on this host.

    Args:
        context: the driver's.
        scratch: directory of the launch, beside its state; None: the state is in no directory.
    """
    if not is_cluster(context.master):
        return None
    surroundings = WorkerRequirements.of_driver(scratch)
    require_fit_workers(context, surroundings)
    return surroundings


def require_fit_workers(context: SparkContext, surroundings: WorkerRequirements) -> None:
    """Wait for executors and let some of their workers compare themselves with the driver.

    This proves nothing about workers that come later: each compares itself again before it works. But it answers before the first batch.

    Raises:
        ClusterBusy: no executor came within ``EXECUTORS_WITHIN_S``.
        WorkersUnfit: a worker differs from the driver.
    """
    _await_executors(context)
    number = 2 * context.defaultParallelism

    # Defined here, so it travels as bytecode: a worker that cannot import the engine can still report that.
    def compare(_: Iterable[int]) -> Iterator[int]:
        with marked():
            surroundings.require()
        yield 0

    try:
        context.parallelize(range(number), number).mapPartitions(compare).collect()
    except Exception as error:  # Spark wraps every error of the other host
        found = decoded(error)
        if isinstance(found, WorkersUnfit):
            raise found from None
        raise WorkersUnfit(f"a worker cannot run the engine: {found}") from error


def _await_executors(context: SparkContext) -> None:
    """Wait for the first executor. A job would also wait, but for ever."""
    deadline = time.monotonic() + EXECUTORS_WITHIN_S
    scala = context._jsc.sc()  # noqa: SLF001 - PySpark's status tracker knows jobs only
    while scala.getExecutorMemoryStatus().size() < 2:  # the driver is one
        if time.monotonic() > deadline:
            conf = context.getConf()
            cores = conf.get("spark.executor.cores") or "1"
            raise ClusterBusy(
                f"{context.master} gave no executor within {EXECUTORS_WITHIN_S:.0f} s. It needs a worker with {cores} free cores and "
                f"{conf.get('spark.executor.memory')} of free memory: start one, let other applications take less "
                "(SLACKWATER_SPARK__MAX_CORES), or ask for less (SLACKWATER_SPARK__EXECUTOR_CORES, …__EXECUTOR_MEMORY)"
            )
        time.sleep(_POLL_S)

"""What ended launches leave in the JVM and in the driver's Python is released of. And the jar that does it is made of its sources."""

from __future__ import annotations

import gc
import time
import zipfile
from collections import Counter
from pathlib import Path

import psutil
import pytest

from engine.spark.make_jar import DIGEST, sources_digest
from engine.spark.session import JAR
from engine.spark.streams.stopping import sweep
from tests.launching import counting, many_flights, register_flights
from tests.spark.conftest import SparkLauncher

pytestmark = pytest.mark.spark

LAUNCHES = 5
SECONDS = 20.0


def kept(launcher: SparkLauncher) -> Counter[str]:
    """Count what launches are known to leave."""
    context = launcher.spark.sparkContext
    gateway = context._gateway
    threads = gateway.jvm.java.lang.management.ManagementFactory.getThreadMXBean()
    monitors = [info for info in threads.dumpAllThreads(False, False) if "Idle Worker Monitor" in info.getThreadName()]
    process = psutil.Process(gateway.proc.pid)
    selectors = [handle for handle in Path(f"/proc/{process.pid}/fd").iterdir() if "eventpoll" in _target(handle)]
    listening = [found for found in process.net_connections() if found.status == psutil.CONN_LISTEN]
    return Counter(
        monitors=len(monitors), selectors=len(selectors), listening=len(listening), python_threads=psutil.Process().num_threads()
    )


def _target(handle: Path) -> str:
    try:
        return str(handle.readlink())
    except FileNotFoundError:
        return ""


def test_launches_leave_no_threads_selectors_or_ports(launcher: SparkLauncher) -> None:
    register_flights(launcher)
    launcher.append("flights", many_flights(10))
    plan = launcher.plan(**counting())
    identity = launcher.run(plan)
    sweep(launcher.spark, settled_s=0)
    before = kept(launcher)
    for epoch in range(2, 2 + LAUNCHES):
        launcher.append("flights", many_flights(10))
        launcher.run(plan, identity, epoch=epoch)
    deadline = time.monotonic() + SECONDS
    # Other things come and go with garbage collections, one at a time; every launch leaves one of each at least.
    while max((left := kept(launcher) - before).values(), default=0) > 1 and time.monotonic() < deadline:
        gc.collect()
        sweep(launcher.spark, settled_s=0)
        time.sleep(0.5)
    assert {name: more for name, more in left.items() if more > 1} == {}


def test_the_jar_is_made_of_these_sources() -> None:
    with zipfile.ZipFile(JAR) as jar:
        assert jar.read(DIGEST).decode() == sources_digest(), "run `make jar`"

"""A standalone Spark cluster on loopback, from the pip package alone, and ways to look at its executors and to kill one."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import yaml

from app.driver.supervisor.process_group import end_session, session_members
from app.testing.machines.service import command_of, free_port
from engine.spark.java import find_java, launchable_home

UP_S = 90.0
AUTH_SECRET = secrets.token_hex(32)
COMPOSED = yaml.safe_load((Path(__file__).parents[2] / "docker-compose.yml").read_text())["x-spark"]["environment"]
DAEMON_OPTIONS = COMPOSED["SPARK_DAEMON_JAVA_OPTS"]
SCRIPT = Path(sys.executable).parent / "spark-class"


class Cluster:
    """A master and workers of one core each.

    Args:
        directory: for logs and scratch files.
        environment: what the workers, and so the executors, have in theirs besides.
    """

    def __init__(self, directory: Path, environment: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self._port = free_port()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLACKWATER_", "SPARK_", "PYSPARK_"))}
        self._environment = (
            kept
            | {
                "JAVA_HOME": str(launchable_home(find_java(), directory)),
                "PATH": f"{SCRIPT.parent}{os.pathsep}{os.environ.get('PATH', '')}",  # where Spark's scripts look for a Python that has it
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_WORKER_DIR": str(directory / "work"),
                "SPARK_LOCAL_DIRS": str(directory / "scratch"),
                "SPARK_DAEMON_JAVA_OPTS": DAEMON_OPTIONS,
                "_SPARK_AUTH_SECRET": AUTH_SECRET,
                **(environment or {}),
            }
        )
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def start(self, workers: int = 2) -> None:
        self._run("master", "master.Master", "--port", str(self._port))
        self._await("master", "I have been elected leader")
        for number in range(workers):
            self._run_worker(number)
        for number in range(workers):
            self._await(f"worker-{number}", "Successfully registered with master")

    def processes(self) -> list[psutil.Process]:
        """Return everything that runs of it: daemons, executors, their Python workers."""
        return [psutil.Process(pid) for each in self._processes.values() for pid in session_members(each.pid)]

    def executors(self) -> list[psutil.Process]:
        """Return the JVMs that work for an application now."""
        found = [psutil.Process(pid) for each in self._processes.values() for pid in session_members(each.pid)]
        return [each for each in found if "CoarseGrainedExecutorBackend" in command_of(each)]

    def python_workers(self) -> list[psutil.Process]:
        """Return the Python processes of executors."""
        found = [psutil.Process(pid) for each in self._processes.values() for pid in session_members(each.pid)]
        return [each for each in found if "pyspark.daemon" in command_of(each)]

    def kill_executor(self) -> int:
        """Kill one that works on something, with SIGKILL; returns its pid."""
        victim = max(self.executors(), key=lambda each: sum(each.cpu_times()[:2]))
        victim.kill()
        return victim.pid

    def kill_host(self, number: int) -> None:
        """Kill a worker with all that it started, as when its host goes."""
        process = self._processes[f"worker-{number}"]
        assert end_session(process.pid, 15)
        process.wait()

    def start_host(self, number: int) -> None:
        """Start a worker again that was killed."""
        self._run_worker(number)
        self._await(f"worker-{number}", "Successfully registered with master")

    def logs(self) -> str:
        paths = [*self.directory.glob("*.log"), *self.directory.glob("work/*/*/stderr")]
        return "\n".join(f"--- {path.relative_to(self.directory)}\n{path.read_text(errors='replace')[-3_000:]}" for path in paths)

    def end(self) -> None:
        for process in self._processes.values():
            assert end_session(process.pid, 15)
            process.wait()

    def _run_worker(self, number: int) -> None:
        self._run(f"worker-{number}", "worker.Worker", "--cores", "1", "--memory", "1g", self.url)

    def _run(self, name: str, main: str, *arguments: str) -> None:
        command = [str(SCRIPT), f"org.apache.spark.deploy.{main}", "--host", "127.0.0.1", "--webui-port", "0", *arguments]
        with (self.directory / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                command, env=self._environment, cwd=self.directory, stdout=log, stderr=log, start_new_session=True
            )

    def _await(self, name: str, said: str) -> None:
        log = self.directory / f"{name}.log"
        deadline = time.monotonic() + UP_S
        while said not in log.read_text(errors="replace"):
            assert self._processes[name].poll() is None, log.read_text(errors="replace")
            assert time.monotonic() < deadline, f"{name} did not start within {UP_S:.0f} s"
            time.sleep(0.1)


@contextmanager
def cluster(directory: Path, environment: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """Run a cluster for the length of a block; when the block fails, show what its logs say."""
    running = Cluster(directory, environment)
    try:
        running.start()
        yield running
    except BaseException:
        print(running.logs())
        raise
    finally:
        running.end()

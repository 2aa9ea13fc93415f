"""The warm process that Spark's Python processes are forked from: what they get of it, and how they end. Without a JVM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from engine.spark.fork_server import ForkServer, start_fork_server

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(sys.platform != "linux", reason="the fork server is started on Linux only"),
]

TELLING = """
import json, os, sys
told = {"arguments": sys.argv[1:], "variable": os.environ["TOLD"], "folder": os.getcwd(), "name": __name__}
told |= {"is_warm": "polars" in sys.modules, "input": sys.stdin.read(), "pid": os.getpid()}
print(json.dumps(told))
print("also this", file=sys.stderr)
raise SystemExit(7)
"""

COUNTING = """
import os, sys
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

def work():
    frame = pl.DataFrame({"k": [n % 7 for n in range(200_000)], "v": range(200_000)})
    total = frame.lazy().group_by("k").agg(pl.col("v").sum()).collect()["v"].sum()
    assert total == pc.sum(pa.table({"v": range(200_000)})["v"]).as_py() == 19_999_900_000

for _ in range(6):
    if (pid := os.fork()) == 0:
        work()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
print(pl.thread_pool_size())
"""

WAITING = """
import os, sys, time
print(os.getpid(), flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    # Deeper than the path of a Unix socket may be.
    directory = tmp_path_factory.mktemp("fork") / ("a data directory with a long name, " * 4)
    directory.mkdir()
    before = os.environ.get("_SLACKWATER_FORK_SERVER")
    started = start_fork_server(directory)
    yield started
    started.close()
    if before is None:
        del os.environ["_SLACKWATER_FORK_SERVER"]
    else:
        os.environ["_SLACKWATER_FORK_SERVER"] = before


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    for name, text in {"telling": TELLING, "counting": COUNTING, "waiting": WAITING}.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def start(executable: Path, modules: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    own = {"PYTHONUNBUFFERED": "", "PYTHONPATH": str(modules)}
    return subprocess.Popen(
        [executable, "-m", *arguments], cwd=modules, env={**os.environ, **own, **environment}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def tell(executable: Path, modules: Path) -> tuple[dict[str, object], str, int]:
    import json

    process = start(executable, modules, "telling", "one", "two words", TOLD="yes")
    output, errors = process.communicate("what came in", timeout=60)
    return json.loads(output), errors, process.returncode


def test_a_forked_process_has_the_streams_arguments_environment_and_exit_code_it_was_asked_for(
    server: ForkServer, modules: Path
) -> None:
    told, errors, code = tell(server.executable, modules)
    assert told.pop("pid") != server.process.pid
    assert told == {
        "arguments": ["one", "two words"],
        "variable": "yes",
        "folder": str(modules),
        "name": "__main__",
        "is_warm": True,
        "input": "what came in",
    }
    assert (errors, code) == ("also this\n", 7)


def test_forks_of_forks_compute_with_thread_pools_of_their_own(server: ForkServer, modules: Path) -> None:
    process = start(server.executable, modules, "counting", POLARS_MAX_THREADS="2")
    output, errors = process.communicate(timeout=120)
    assert (output, errors, process.returncode) == ("2\n", "", 0)


def test_ending_what_asked_ends_the_fork(server: ForkServer, modules: Path) -> None:
    process = start(server.executable, modules, "waiting")
    assert process.stdout is not None
    forked = psutil.Process(int(process.stdout.readline()))
    assert forked.ppid() == server.process.pid
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert psutil.wait_procs([forked], timeout=60)[1] == []


def test_ending_the_fork_ends_what_asked(server: ForkServer, modules: Path) -> None:
    process = start(server.executable, modules, "waiting")
    assert process.stdout is not None
    os.kill(int(process.stdout.readline()), signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == 1


def test_without_a_server_python_itself_is_started(modules: Path) -> None:
    directory = modules / "server"
    directory.mkdir()
    before = os.environ.pop("_SLACKWATER_FORK_SERVER", None)
    try:
        gone = start_fork_server(directory)
        gone.close()
        told, errors, code = tell(gone.executable, modules)
    finally:
        del os.environ["_SLACKWATER_FORK_SERVER"]
        if before is not None:
            os.environ["_SLACKWATER_FORK_SERVER"] = before
    assert (told["arguments"], told["is_warm"], told["input"]) == (["one", "two words"], False, "what came in")
    assert told["folder"] == str(modules)
    assert (errors, code) == ("also this\n", 7)


def test_the_server_ends_with_the_process_that_started_it(modules: Path) -> None:
    (modules / "own").mkdir()
    script = (
        "import sys, os; from pathlib import Path; from engine.spark.fork_server import start_fork_server;"
        "print(start_fork_server(Path('own')).process.pid, flush=True); sys.stdin.read(1); os._exit(9)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=modules, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    server = psutil.Process(int(process.stdout.readline()))
    process.communicate("x", timeout=60)
    deadline = time.monotonic() + 60
    # Whoever inherits it need not reap it.
    with suppress(psutil.NoSuchProcess):
        while server.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline
            time.sleep(0.05)

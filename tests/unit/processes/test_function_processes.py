"""Processes of Python functions: they end with their caller, end unused, read nothing of other processes, and take the memory they may."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import polars as pl
import pytest

from engine.processes import python_functions
from engine.processes.python_functions import FunctionEnded, Runnable, call
from engine.processes.python_processes import import_environment

PATIENCE_S = 30.0
"""Until a process that ends has ended, on a machine that does much else."""

SECRET = "hush-4711"

_CALLER = """
import json, os, sys
import polars as pl
from engine.processes.function_isolation import leave_other_processes
from engine.processes.python_functions import FunctionRefused, Runnable, call
if sys.argv[2] == "forking":
    call(Runnable("other", "n", ("n",), 60.0, 64 << 20), [pl.Series([0])])  # its process is there when this one forks
body, rows = json.loads(sys.argv[1])
if sys.argv[2] == "forking":
    call(Runnable("f", body, ("n",), 60.0, 64 << 20), [pl.Series([0])])
    if os.fork() == 0:
        os.close(1)
        sys.stdin.read()
        os._exit(0)
if sys.argv[2] == "nested":
    for _ in range(16):  # more domains of Landlock a process cannot be in, so functions share this one's
        leave_other_processes()
try:
    print(json.dumps(call(Runnable("f", body, ("n",), 60.0, 64 << 20), [pl.Series(rows)]).to_list()), flush=True)
except FunctionRefused:
    print('"refused"')
"""
"""A process that calls a function, as a service or a worker does."""

_READING = """
import json, os
read = {}
for path in [*(f"/proc/{each}/environ" for each in os.listdir("/proc") if each.isdigit()), f"/proc/{os.getppid()}/mem"]:
    if path != f"/proc/{os.getpid()}/environ":
        try:
            with open(path, "rb") as file:
                if path.endswith("environ") and file.read() or path.endswith("mem"):
                    read[path] = True
        except OSError:
            pass
return [json.dumps([sorted(read), sorted(os.environ), [line.split()[1] for line in open('/proc/self/status') if line.startswith('CapEff')]])]
"""

USERS = (None, 1234) if os.geteuid() == 0 else (None,)
"""Whoever runs the tests, and where that is root an ordinary user besides."""


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    yield
    python_functions.close_all()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """What functions connect to: its end tells of theirs."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(PATIENCE_S)
        yield made


def connecting(listener: socket.socket) -> str:
    """Python that connects to the listener, once, for as long as its process lives."""
    address = listener.getsockname()
    return f"import builtins, os, socket\nbuiltins.kept = socket.create_connection({address!r})\n"


def caller(body: str, rows: list[int], how: str = "plain", user: int | None = None) -> subprocess.Popen[str]:
    # Python itself may lie where only root can read: whoever calls keeps that right, which opens no other process.
    right = "+dac_read_search"
    as_user = [
        "setpriv",
        f"--reuid={user}",
        f"--regid={user}",
        "--clear-groups",
        f"--inh-caps={right}",
        f"--ambient-caps={right}",
    ]
    return subprocess.Popen(
        [*(as_user if user else []), sys.executable, "-P", "-c", _CALLER, json.dumps([body, rows]), how],
        env=import_environment() | {"SLACKWATER_SECRET_A": SECRET, "AWS_SECRET_ACCESS_KEY": SECRET},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def end_of(connection: socket.socket) -> bytes:
    """Wait for the end of the process at the other side."""
    connection.settimeout(PATIENCE_S)
    with suppress(ConnectionResetError):
        return connection.recv(1)
    return b""


def runnable(body: str, mib: int = 64) -> Runnable:
    return Runnable(body, body, ("n",), 60.0, mib << 20)


@pytest.mark.parametrize("how", ["plain", "forking"])
def test_a_process_ends_with_a_caller_that_is_killed(listener: socket.socket, how: str) -> None:
    # Inside of one call of C, where no other thread of the process has a turn.
    body = f"if n[0] == 0:\n    return n\n{connecting(listener)}sum(iter(int, 1))"
    process = caller(body, [1], how)
    assert process.stdin is not None
    try:
        connection, _ = listener.accept()
        with connection:
            process.send_signal(signal.SIGKILL)
            process.wait()
            assert end_of(connection) == b""
    finally:
        process.kill()
        process.communicate()


def test_a_process_that_nobody_uses_ends_and_the_next_call_starts_another(listener: socket.socket) -> None:
    hosts = python_functions.Hosts(idle_s=0.2)
    asked = runnable(f"{connecting(listener)}return [os.getpid()]")
    first = hosts.call(asked, [pl.Series([1])])[0]
    connection, _ = listener.accept()
    with connection:
        assert end_of(connection) == b""
    second = hosts.call(asked, [pl.Series([1])])[0]
    hosts.close_all()
    assert first != second


def test_closing_ends_a_call_that_is_under_way(listener: socket.socket) -> None:
    hosts = python_functions.Hosts()
    asked = runnable(f"{connecting(listener)}while True:\n    pass")
    with ThreadPoolExecutor(1) as threads:
        under_way = threads.submit(hosts.call, asked, [pl.Series([1])])
        connection, _ = listener.accept()
        with connection:
            hosts.close_all()
            assert end_of(connection) == b""
        with pytest.raises(FunctionEnded):
            under_way.result(PATIENCE_S)


def test_processes_of_other_functions_that_nobody_uses_are_reaped() -> None:
    hosts = python_functions.Hosts(idle_s=0.0)
    first = hosts.call(runnable("import os\nreturn [os.getpid()]"), [pl.Series([1])])[0]
    hosts.call(runnable("n"), [pl.Series([1])])
    hosts.close_all()
    with pytest.raises(ChildProcessError):
        os.waitpid(first, os.WNOHANG)


@pytest.mark.parametrize("user", USERS)
def test_a_function_reads_neither_the_environment_nor_the_memory_of_another_process(user: int | None) -> None:
    process = caller(_READING, [1], user=user)
    said, _ = process.communicate(timeout=PATIENCE_S * 2)
    read, variables, capabilities = json.loads(json.loads(said)[0])
    assert read == []
    assert not [name for name in variables if name.startswith(("SLACKWATER_", "AWS_"))]
    assert user is not None or capabilities == ["0" * 16]


@pytest.mark.parametrize("user", USERS)
def test_without_landlock_root_alone_runs_functions(user: int | None) -> None:
    process = caller(_READING, [1], "nested", user=user)
    said = json.loads(process.communicate(timeout=PATIENCE_S * 2)[0])
    is_root = user is None and os.geteuid() == 0
    assert (json.loads(said[0])[0] if is_root else said) == ([] if is_root else "refused")


def test_a_function_signals_no_process_beside_its_own() -> None:
    body = "import os\ntry:\n    os.kill(os.getppid(), 0)\nexcept PermissionError:\n    return ['refused']\nreturn ['done']"
    assert call(runnable(body), [pl.Series([1])]).to_list() == ["refused"]


@pytest.mark.parametrize("taking", ["x = bytearray({} << 20)", "x = pl.repeat(1.0, {} << 17, eager=True)"])
def test_a_function_has_the_memory_that_it_is_given(taking: str) -> None:
    rows = [pl.Series([1, 2])]
    assert call(runnable(f"{taking.format(40)}\nreturn n"), rows).to_list() == [1, 2]
    with pytest.raises(python_functions.FunctionFailed):
        call(runnable(f"{taking.format(300)}\nreturn n"), rows)


def test_the_least_memory_is_enough_for_a_small_call() -> None:
    assert call(runnable("n * 2 + n.cast(pl.String).str.len_chars()", mib=1), [pl.Series([1, 2])]).to_list() == [3, 5]


def test_a_process_that_ends_is_told_apart_from_a_function_that_raises() -> None:
    with pytest.raises(FunctionEnded, match="its process ended"):
        call(runnable("import os\nos._exit(1)"), [pl.Series([1])])

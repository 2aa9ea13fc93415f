"""A warm process from which all of Spark's Python processes are forked.

For one query Spark starts up to five kinds of Python processes: to make the source, plan its reads, follow its positions, prepare
state, and work. Each starts through a daemon, and each imports PySpark, pandas, Arrow, Polars and this engine: 1.3 to 2 s of
CPU. This server imports them once, while the JVM starts. A fork takes milliseconds and shares the memory of the imports. The server forks
PySpark's own daemon, so the protocol stays Spark's; Spark starts ``fork_request`` instead.

Forking is safe because nothing here starts threads or opens connections. The thread pools of Polars and Arrow begin with their
first use, which is in a fork. Their allocators handle forks themselves.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import json
import os
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import traceback
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from engine.processes.python_processes import WORKER, import_environment, python_command
from engine.spark.fork_request import ADDRESS_VARIABLE, STANDARD_STREAMS

DAEMON = "pyspark.daemon"

MODULES = (
    DAEMON,
    "pyspark.worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pandas",
    "engine.sources.connector_kinds",
    "engine.runtime.source",
    "engine.runtime.stages",
)
"""The modules that Spark's Python processes run, and the modules that these import on first use."""

BACKLOG = 64
REQUEST_S = 10.0
"""A client writes its request at once; a client that does not must not delay the others."""

END_S = 5.0
_WRAPPER = """#!/bin/sh
# What Spark takes for Python: asks the driver's fork server for a warm process.
exec {python} -I -S {request} "$@"
"""


@dataclass(frozen=True, slots=True)
class ForkServer:
    """The server, as seen by the process that started it.

    Attributes:
        executable: the program that Spark starts instead of Python.
    """

    process: subprocess.Popen[bytes]
    executable: Path

    def close(self) -> None:
        """End the server; forked processes continue until Spark ends them. The server also ends with the process that started it."""
        assert self.process.stdin is not None  # noqa: S101
        self.process.stdin.close()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_fork_server(directory: Path) -> ForkServer:
    """Start a server and return at once: it already listens, and answers when it has imported everything.

    Args:
        directory: this process's own; gets the socket and the executable.
    """
    executable = directory / "python"
    request = Path(__file__).with_name("fork_request.py")
    executable.write_text(_WRAPPER.format(python=shlex.quote(sys.executable), request=shlex.quote(str(request))))
    executable.chmod(0o755)
    address = directory / "fork-server"
    listener = _listening(address)
    try:
        process = subprocess.Popen(
            python_command(__name__, str(listener.fileno())),
            env={
                **import_environment(),
                **WORKER,  # read when the libraries are imported: no thread pool may exist when this process forks
                ADDRESS_VARIABLE: str(address),
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
            stdin=subprocess.PIPE,
            pass_fds=(listener.fileno(),),
        )
    finally:
        listener.close()
    server = ForkServer(process, executable)
    atexit.register(server.close)
    os.environ[ADDRESS_VARIABLE] = str(address)
    return server


def _listening(address: Path) -> socket.socket:
    """Listen at an address whose path may be longer than the 107 bytes of a socket address."""
    listener = socket.socket(socket.AF_UNIX)
    handle = os.open(address.parent, os.O_RDONLY)
    try:
        listener.bind(f"/proc/self/fd/{handle}/{address.name}")
    finally:
        os.close(handle)
    address.chmod(0o600)
    listener.listen(BACKLOG)
    return listener


def serve(listener: socket.socket) -> None:
    """Import everything, then fork a daemon for each request, until standard input ends. Does not return in a fork."""
    for module in MODULES:
        importlib.import_module(module)
    gc.collect()
    # A worker collects garbage after every task. Frozen objects are skipped, and their pages stay shared.
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    poller = select.poll()
    poller.register(0, select.POLLIN)
    poller.register(listener, select.POLLIN)
    while 0 not in (ready := [descriptor for descriptor, _ in poller.poll()]):
        if listener.fileno() in ready:
            connection, _ = listener.accept()
            with connection, suppress(OSError, ValueError):
                _answer(connection, listener)


def _answer(connection: socket.socket, listener: socket.socket) -> None:
    connection.settimeout(REQUEST_S)
    _, descriptors, _, _ = socket.recv_fds(connection, 1, len(STANDARD_STREAMS))
    try:
        request = json.load(connection.makefile())
        if os.fork() == 0:
            listener.close()
            _become(request, descriptors, connection)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _become(request: dict[str, Any], descriptors: list[int], connection: socket.socket) -> None:
    """Become the requested daemon; never returns."""
    code = 1
    try:
        for descriptor, stream in zip(descriptors, STANDARD_STREAMS, strict=True):
            os.dup2(descriptor, stream)
            os.close(descriptor)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _end_with(connection)
        _, module, *arguments = request["arguments"]
        _name_process([module, *arguments][-1])
        os.environ.clear()
        os.environ.update(request["environment"])
        # Polars keeps the environment of its import.
        pl.Config.restore_defaults()
        os.chdir(request["directory"])
        for path in os.environ.get("PYTHONPATH", "").split(os.pathsep):
            if path not in sys.path and Path(path).exists():
                sys.path.append(path)
        sys.argv = [module, *arguments]
        connection.settimeout(None)
        connection.sendall(b"+")
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 1
    except BaseException:  # noqa: BLE001 - the last act of this process is to report the reason
        traceback.print_exc()
    for written in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            written.flush()  # a pipe gets its text only then
    with suppress(OSError):
        connection.sendall(bytes([code & 0xFF]))
    os._exit(code)


def _end_with(connection: socket.socket) -> None:
    """End when the process that requested this one is gone: Spark ends that process."""
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(connection, fcntl.F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(connection, fcntl.F_SETFL, fcntl.fcntl(connection, fcntl.F_GETFL) | os.O_ASYNC)
    # The end of the connection shows that this process is gone, so no process that it forks may keep the connection open.
    os.register_at_fork(after_in_child=connection.close)


def _name_process(worker: str) -> None:
    """Show in process lists what this process does; the command line stays the server's."""
    with suppress(OSError):
        Path("/proc/self/comm").write_text(f"py-{worker.rpartition('.')[2]}"[:15])


def main() -> None:
    """Serve the listening socket of the parent process."""
    # Python warns of forks beside other threads: these are the allocators' own, see above. It also warns of running an imported module.
    warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)
    warnings.filterwarnings("ignore", message=".*found in sys.modules", category=RuntimeWarning)
    serve(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()

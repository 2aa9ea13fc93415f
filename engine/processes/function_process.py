"""The process that runs a Python function of users: gives rights up, bounds itself, and serves.

``engine.processes.python_functions`` starts it.
"""

from __future__ import annotations

import fcntl
import importlib
import io
import os
import select
import signal
import sys

from engine.processes import function_isolation

READY = b"r"
"""Sent once everything is imported, so that starting does not count as the function's time."""

REFUSED = b"x"
"""Sent instead, where a function could read the environment of the caller."""


def main() -> None:
    """Serve one function: ``function_process LIVENESS MOST_BYTES IDLE_S``; ``LIVENESS`` is a pipe that ends with the caller."""
    liveness, most_bytes, idle_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    end_with(liveness)
    target = sys.stdout.buffer
    sys.stdout = io.StringIO()
    function_isolation.leave_other_processes()
    host = importlib.import_module("engine.processes.function_host")  # with Polars, which starts threads
    host.warm_up()
    function_isolation.give_up_root()
    if function_isolation.can_read_caller():
        target.write(REFUSED)
        target.flush()
        return
    function_isolation.bound_memory(most_bytes)
    target.write(READY)
    target.flush()
    host.serve(sys.stdin.buffer, target, idle_s)


def end_with(liveness: int) -> None:
    """Be killed by the kernel when the other end of a pipe, in which nothing is written, is closed: whatever runs here at that moment."""
    if sys.platform == "linux":
        fcntl.fcntl(liveness, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(liveness, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(liveness, fcntl.F_SETFL, fcntl.fcntl(liveness, fcntl.F_GETFL) | os.O_ASYNC)
        if select.select([liveness], [], [], 0)[0]:  # closed before
            os._exit(1)


if __name__ == "__main__":
    main()

"""A driver and all its child processes, as the operating system shows them.

A driver leads its own session. It is gone only when the whole session is gone: the JVM outlives its Python parent by about two seconds, and
PySpark's worker daemons make their own process groups but stay in the session.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

import psutil

# Tolerance of psutil's create time: it is computed from boot time and ticks, and the clock may change in between.
SAME_PROCESS_S = 2.0
POLL_S = 0.05


def create_time(pid: int) -> float | None:
    """Return the start time of a living process, in seconds since the epoch; None if it does not exist or is a zombie."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None


def is_same_process(pid: int, created_at: float) -> bool:
    """Whether a pid still belongs to the process that started at that time."""
    started_at = create_time(pid)
    return started_at is not None and abs(started_at - created_at) < SAME_PROCESS_S


def session_members(leader: int) -> list[int]:
    """Return the living processes of a session. Zombies use no resources; their parents must reap them."""
    members = []
    for pid in psutil.pids():
        with suppress(ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            if os.getsid(pid) == leader and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                members.append(pid)
    return members


def end_session(leader: int, patience_s: float) -> bool:
    """Kill all processes of a session, and wait until they are gone.

    Returns:
        Whether they are gone within ``patience_s``.
    """
    deadline = time.monotonic() + patience_s
    while members := session_members(leader):
        for pid in members:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True

"""A driver and everything it started, as the operating system sees it.

A driver leads its own session. "Gone" means that the whole session is gone: the JVM outlives its Python parent by about two
seconds, and PySpark's worker daemons make process groups of their own but stay in the session.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

import psutil

# How exact psutil's create time is: it is computed from boot time and ticks, and the clock may be stepped in between.
SAME_PROCESS_S = 2.0
POLL_S = 0.05


def create_time(pid: int) -> float | None:
    """Return when a living process began, in seconds since the epoch; None when there is none, or only a zombie."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None


def is_same_process(pid: int, created_at: float) -> bool:
    """Whether a pid still names the process that began then."""
    found = create_time(pid)
    return found is not None and abs(found - created_at) < SAME_PROCESS_S


def session_members(leader: int) -> list[int]:
    """Return the living processes of a session. Zombies hold nothing any more; whoever started them must reap them."""
    members = []
    for pid in psutil.pids():
        with suppress(ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            if os.getsid(pid) == leader and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                members.append(pid)
    return members


def end_session(leader: int, patience_s: float) -> bool:
    """Kill what is left of a session, and wait until it is gone.

    Returns:
        Whether it is gone within ``patience_s``.
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

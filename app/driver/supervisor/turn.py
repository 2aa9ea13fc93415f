"""The messages between a spare driver and its supervisor, on the spare's standard input, which is a socket of the supervisor.

Knows nothing of either side, and imports nothing that takes time.
"""

from __future__ import annotations

import os
import socket

READY = b"r"
"""The spare has imported everything."""

GO = b"g"
"""The spare becomes the driver now."""


def await_turn() -> bool:
    """Tell the supervisor that this process is ready, and wait for its answer; standard input is empty afterwards.

    The answer carries the file of the current log, which replaces standard output and error.

    Returns:
        Whether this process becomes the driver; False: its supervisor has exited or does not need it.
    """
    with socket.socket(fileno=os.dup(0)) as supervisor:
        try:
            supervisor.sendall(READY)
            message, logs, _, _ = socket.recv_fds(supervisor, 1, 1)
        except ConnectionError:
            message, logs = b"", []
    for log in logs:
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return message == GO

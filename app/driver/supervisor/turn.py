"""How a spare driver waits for its turn: what it says and hears at its standard input, which is a socket of its supervisor's.

Knows nothing of either side, and imports nothing that takes time.
"""

from __future__ import annotations

import os
import socket

READY = b"r"
"""The spare has imported everything."""

GO = b"g"
"""It is to be the driver from now on."""


def await_turn() -> bool:
    """Tell the supervisor that this process is ready, and wait; standard input is empty afterwards.

    With its turn comes the log that is written now, which stands behind standard output and error from then on.

    Returns:
        Whether this process is to be the driver now; False: its supervisor has gone or does not need it any more.
    """
    with socket.socket(fileno=os.dup(0)) as supervisor:
        try:
            supervisor.sendall(READY)
            heard, logs, _, _ = socket.recv_fds(supervisor, 1, 1)
        except ConnectionError:
            heard, logs = b"", []
    for log in logs:
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return heard == GO

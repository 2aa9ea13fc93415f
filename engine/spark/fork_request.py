"""What Spark starts instead of Python: asks the fork server for the process, and waits for its end.

Spark gives a Python process its own input and output, arguments and environment; all of them are passed on over a Unix socket. Without a
server, or where it does not answer, this process becomes what was asked for itself. Only the standard library, for this runs before
anything is imported: ``python -I -S fork_request.py -m pyspark.daemon pyspark.worker``.
"""

# ruff: noqa: PTH109, PTH119, PTH120 - importing pathlib would double the time this takes

from __future__ import annotations

import json
import os
import socket
import sys

ADDRESS_VARIABLE = "_SLACKWATER_FORK_SERVER"
"""Names the server's socket to whatever Spark starts."""

PATIENCE_S = 60.0
"""A server answers at once, or as soon as it has imported everything: seconds, on a loaded machine tens of them."""

STANDARD_STREAMS = (0, 1, 2)


def main() -> int:
    """Return the exit code of the process that was forked; does not return where there is no server."""
    try:
        connection = _request_process(os.environ[ADDRESS_VARIABLE], sys.argv[1:])
    except (KeyError, OSError):
        os.execv(sys.executable, [sys.executable, "-P", *sys.argv[1:]])  # noqa: S606 - what Spark asked for
    # The process has these streams now: should it end, nobody may wait for this one to close them.
    for stream in STANDARD_STREAMS:
        os.close(stream)
    connection.settimeout(None)
    try:
        code = connection.recv(1)
    except OSError:
        code = b""
    return code[0] if code else 1


def _request_process(address: str, arguments: list[str]) -> socket.socket:
    """Ask for a process; returns the connection, at the other end of which it is, once it exists."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(PATIENCE_S)
    directory = os.getcwd()
    # A socket's path has 107 bytes at most; its name is short.
    os.chdir(os.path.dirname(address))
    try:
        connection.connect(os.path.basename(address))
    finally:
        os.chdir(directory)
    request = {"arguments": arguments, "environment": dict(os.environ), "directory": directory}
    socket.send_fds(connection, [b"+"], STANDARD_STREAMS)
    connection.sendall(json.dumps(request).encode())
    connection.shutdown(socket.SHUT_WR)
    if connection.recv(1) != b"+":
        raise ConnectionError("the fork server did not fork")
    return connection


if __name__ == "__main__":
    sys.exit(main())

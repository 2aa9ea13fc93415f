"""Spark starts this program instead of Python. It asks the fork server for the process, and waits for the process to end.

Spark gives a Python process its own input and output, arguments and environment; this program passes them on over a Unix socket. If no
server answers, this program becomes the requested process itself. It imports only the standard library, because it runs before
anything else: ``python -I -S fork_request.py -m pyspark.daemon pyspark.worker``.
"""

# ruff: noqa: PTH109, PTH119, PTH120 - importing pathlib would double the time this takes

from __future__ import annotations

import json
import os
import socket
import sys

ADDRESS_VARIABLE = "_SLACKWATER_FORK_SERVER"
"""The environment variable with the path of the server's socket."""

PATIENCE_S = 60.0
"""A server answers at once, or when it has imported everything: after seconds, on a loaded machine after tens of them."""

STANDARD_STREAMS = (0, 1, 2)


def main() -> int:
    """Return the exit code of the process that was forked; does not return if there is no server."""
    try:
        connection = _request_process(os.environ[ADDRESS_VARIABLE], sys.argv[1:])
    except (KeyError, OSError):
        os.execv(sys.executable, [sys.executable, "-P", *sys.argv[1:]])  # noqa: S606 - what Spark asked for
    # The forked process owns these streams now. If they stayed open here, readers would not see its end.
    for stream in STANDARD_STREAMS:
        os.close(stream)
    connection.settimeout(None)
    try:
        code = connection.recv(1)
    except OSError:
        code = b""
    return code[0] if code else 1


def _request_process(address: str, arguments: list[str]) -> socket.socket:
    """Request a process; return a connection to it once it exists."""
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

"""Python functions of users, run in processes of their own: a crash, an endless loop or a flood of memory ends such a process and nothing else.

One process for each function and each process of ours that calls it; it starts with the first call and ends with its caller.
"""

from __future__ import annotations

import io
import json
import os
import select
import struct
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import polars as pl

from engine.python_processes import import_environment, python_command

BASE_BYTES: Final = 4 << 30
"""Address space that Python and Polars map before a function does anything; little of it is memory."""

START_S: Final = 60.0
"""How long a process may take to import what it needs, on a machine that does much else."""

_WITHHELD: Final = "SLACKWATER_"
"""Beginning of the variables that a function does not get."""

_CHUNK: Final = 1 << 16


class FunctionFailed(Exception):
    """The function raised, took too long, or its process ended; the text says which."""


class FunctionEnded(FunctionFailed):
    """It took too long, or its process ended: asking again costs as much again.

    Attributes:
        lost_s: how long the call took.
    """

    def __init__(self, text: str, lost_s: float) -> None:
        super().__init__(text)
        self.lost_s = lost_s


@dataclass(frozen=True, slots=True)
class Runnable:
    """What a process must know of a function.

    Attributes:
        id: equal for equal functions.
        body: of the function.
        parameters: their names, in order.
        most_s: how long one call may take.
        most_bytes: how much memory its process may take beside what every process does.
    """

    id: str
    body: str
    parameters: tuple[str, ...]
    most_s: float
    most_bytes: int


class _Host:
    """A process that runs one function."""

    def __init__(self, runnable: Runnable) -> None:
        self._runnable = runnable
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def call(self, columns: pl.DataFrame) -> pl.Series:
        """Run the function once."""
        with self._turn:
            began_s = time.monotonic()
            try:
                return self._call(columns)
            except (OSError, EOFError, TimeoutError) as error:
                self.close()
                lost_s = time.monotonic() - began_s
                if isinstance(error, TimeoutError):
                    raise FunctionEnded(f"it took more than {self._runnable.most_s:g} s", lost_s) from error
                raise FunctionEnded("its process ended: it may have used more memory than it may", lost_s) from error

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with suppress(BrokenPipeError):
                        pipe.close()
            self._process = None

    def _call(self, columns: pl.DataFrame) -> pl.Series:
        process = self._process
        if process is None or process.poll() is not None:
            process = self._started()
        runnable = self._runnable
        head = json.dumps({"id": runnable.id, "body": runnable.body, "parameters": runnable.parameters}).encode()
        sent = io.BytesIO()
        columns.write_ipc(sent, compression="uncompressed")
        data = sent.getvalue()
        deadline = time.monotonic() + runnable.most_s
        _write(process, struct.pack("<IQ", len(head), len(data)) + head + data, deadline)
        status, size = struct.unpack("<BQ", _read(process, 9, deadline))
        answer = _read(process, size, deadline)
        if status:
            raise FunctionFailed(answer.decode(errors="replace"))
        return pl.read_ipc(io.BytesIO(answer)).get_column("value")

    def _started(self) -> subprocess.Popen[bytes]:
        command = python_command("engine.function_host", str(BASE_BYTES + self._runnable.most_bytes))
        # What runs there is code of users: keys, passwords and secrets of connections stay here.
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_WITHHELD)}
        environment = import_environment(kept) | {"POLARS_MAX_THREADS": "1"}
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
        self._process = process  # which is ended, too, if it does not get ready
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
        _read(process, 1, time.monotonic() + START_S)
        return process


def _write(process: subprocess.Popen[bytes], data: bytes, deadline: float) -> None:
    if process.stdin is None:
        raise EOFError
    view, descriptor = memoryview(data), process.stdin.fileno()
    while view:
        _wait([], [descriptor], deadline)
        view = view[os.write(descriptor, view[:_CHUNK]) :]


def _read(process: subprocess.Popen[bytes], size: int, deadline: float) -> bytes:
    if process.stdout is None:
        raise EOFError
    parts, left, descriptor = [], size, process.stdout.fileno()
    while left:
        _wait([descriptor], [], deadline)
        part = os.read(descriptor, min(left, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _wait(reading: list[int], writing: list[int], deadline: float) -> None:
    left = deadline - time.monotonic()
    if left <= 0 or not any(select.select(reading, writing, [], left)):
        raise TimeoutError


_HOSTS: dict[tuple[int, str], _Host] = {}
"""By the process that asks, for a fork must not talk to its parent's, and the function."""

_MAKING = threading.Lock()


def call(runnable: Runnable, columns: Sequence[pl.Series]) -> pl.Series:
    """Run a function over columns.

    Raises:
        FunctionFailed: it raised, took too long, or its process ended.
    """
    key = os.getpid(), runnable.id
    with _MAKING:
        host = _HOSTS.get(key)
        if host is None:
            host = _HOSTS[key] = _Host(runnable)
    named = [column.alias(f"_{number}") for number, column in enumerate(columns)]
    return host.call(pl.DataFrame(named))


def close_all() -> None:
    """End every process that this process has started."""
    with _MAKING:
        own = [key for key in _HOSTS if key[0] == os.getpid()]
        for key in own:
            _HOSTS.pop(key).close()

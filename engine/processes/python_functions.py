"""Python functions of users, run in processes of their own: a crash, an endless loop or a flood of memory ends such a process and nothing else.

One process for each function and each process of ours that calls it; it starts with the first call, and ends with its caller or when nobody
has used it for a while. It cannot read other processes (``engine.processes.function_isolation``).
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

from engine.processes.function_process import REFUSED
from engine.processes.python_processes import import_environment, python_command

IDLE_S: Final = 300.0
"""A process that was not asked for so long is not asked again: it has 70 MB, and another one takes half a second to start."""

START_S: Final = 60.0
"""How long a process may take to import what it needs, on a machine that does much else."""

_PASSED: Final = (
    "HOME",
    "LANG",
    "LANGUAGE",
    "LC_",
    "LD_LIBRARY_PATH",
    "PATH",
    "PYTHON",
    "SSL_CERT_",
    "TMPDIR",
    "TZ",
    "VIRTUAL_ENV",
)
"""Beginnings of the variables that a function gets: none in which people keep secrets."""

_CHUNK: Final = 1 << 16


class FunctionFailed(Exception):
    """The function raised, took too long, or its process ended; the text says which."""


class FunctionRefused(Exception):
    """This machine runs no functions: they could read the secrets of the process that calls them."""


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

    def __init__(self, runnable: Runnable, idle_s: float) -> None:
        self._runnable = runnable
        self._idle_s = idle_s
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._liveness = -1
        self._used_at = 0.0

    def call(self, columns: pl.DataFrame) -> pl.Series:
        """Run the function once."""
        with self._turn:
            began_s = time.monotonic()
            try:
                self._end_unused()
                return self._call(columns)
            except (OSError, EOFError, TimeoutError) as error:
                self._end()
                lost_s = time.monotonic() - began_s
                if isinstance(error, TimeoutError):
                    raise FunctionEnded(f"it took more than {self._runnable.most_s:g} s", lost_s) from error
                raise FunctionEnded("its process ended: it may have used more memory than it may", lost_s) from error
            finally:
                self._used_at = time.monotonic()

    def close(self) -> None:
        """End the process; a call that is under way fails."""
        if (process := self._process) is not None:
            process.kill()
        with self._turn:
            self._end()

    def close_unused(self) -> None:
        """End the process if nobody uses it, nor has for a while."""
        if self._turn.acquire(blocking=False):
            try:
                self._end_unused()
            finally:
                self._turn.release()

    def forget(self) -> None:
        """In a fork: close the ends of pipes, which keep the process alive. The process stays the caller's."""
        if self._process is not None:
            self._close_pipes(self._process)
            self._process.returncode = 0  # it is no child of this process
            self._process = None

    def _end_unused(self) -> None:
        if time.monotonic() - self._used_at >= self._idle_s:
            self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._close_pipes(self._process)
            self._process = None

    def _close_pipes(self, process: subprocess.Popen[bytes]) -> None:
        os.close(self._liveness)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    def _call(self, columns: pl.DataFrame) -> pl.Series:
        if self._process is not None and self._process.poll() is not None:
            self._end()
        process = self._process or self._started()
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
        theirs, ours = os.pipe()
        try:
            process = subprocess.Popen(
                python_command("engine.processes.function_process", str(theirs), str(self._runnable.most_bytes), str(self._idle_s)),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, pass_fds=(theirs,), env=_environment(),
            )  # fmt: skip
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        self._process, self._liveness = process, ours  # it is ended, too, if it does not get ready
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
        if _read(process, 1, time.monotonic() + START_S) == REFUSED:
            self._end()
            raise FunctionRefused(
                "the system keeps functions from reading the service's secrets in none of the ways known; see Security in the guide"
            )
        return process


def _environment() -> dict[str, str]:
    """Return the environment of a function: no keys, passwords and secrets, whoever reads them."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(_PASSED)}
    # More than one arena of malloc would take address space, which is what is bounded.
    return import_environment(kept) | {"POLARS_MAX_THREADS": "1", "MALLOC_ARENA_MAX": "1"}


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


class Hosts:
    """The processes of functions that this process has started; safe for threads.

    Args:
        idle_s: a process ends when it was not used for so long: at the next call of any function, and by itself at twice the time.
    """

    def __init__(self, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._hosts: dict[str, _Host] = {}
        self._making = threading.Lock()
        os.register_at_fork(after_in_child=self._forget)

    def call(self, runnable: Runnable, columns: Sequence[pl.Series]) -> pl.Series:
        """Run a function over columns.

        Raises:
            FunctionFailed: it raised, took too long, or its process ended.
            FunctionRefused: this machine runs none.
        """
        with self._making:
            host = self._hosts.setdefault(runnable.id, _Host(runnable, self._idle_s))
            others = [each for each in self._hosts.values() if each is not host]
        for each in others:
            each.close_unused()
        named = [column.alias(f"_{number}") for number, column in enumerate(columns)]
        return host.call(pl.DataFrame(named))

    def close_all(self) -> None:
        """End every process that this process has started: where a service stops inside a process that goes on.

        Those of a process that ends, also by a signal, end with it.
        """
        with self._making:
            hosts = list(self._hosts.values())
            self._hosts.clear()
        for each in hosts:
            each.close()

    def _forget(self) -> None:
        """Of a fork: it must not talk to its parent's processes, nor keep them alive."""
        hosts, self._hosts, self._making = self._hosts, {}, threading.Lock()
        for each in hosts.values():
            each.forget()


_HOSTS: Final = Hosts()
call: Final = _HOSTS.call
close_all: Final = _HOSTS.close_all

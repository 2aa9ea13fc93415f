"""The notification of a slot's folder: a query that joins wakes the planning process, which waits for records, and it looks at once."""

from __future__ import annotations

import os
import select
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

_NAME: Final = "bell"
_READ_BYTES: Final = 4_096


def hang(folder: Path) -> None:
    """Make the named pipe of the notification."""
    os.mkfifo(folder / _NAME, 0o600)


def notify(folder: Path) -> None:
    """Wake the process that waits. If none waits, nothing is lost: each process looks before it waits."""
    with suppress(OSError):
        pipe = os.open(folder / _NAME, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(pipe, b"!")
        finally:
            os.close(pipe)


class Notification:
    """The receiving end, in the process that waits.

    Args:
        folder: of the queries' files. If it has no pipe, a wait takes its full time.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pipe: int | None = None

    def wait(self, seconds: float) -> None:
        """Wait for a notification, at most this long. The first call returns at once: a notification may have come before this process began."""
        if self._pipe is None:
            try:
                # Opened for writing too: without a writer, a pipe reports its end again and again.
                self._pipe = os.open(self._folder / _NAME, os.O_RDWR | os.O_NONBLOCK)
            except FileNotFoundError:
                time.sleep(seconds)
            return
        waiting = select.poll()
        waiting.register(self._pipe, select.POLLIN)
        if waiting.poll(seconds * 1_000):
            with suppress(BlockingIOError):
                os.read(self._pipe, _READ_BYTES)

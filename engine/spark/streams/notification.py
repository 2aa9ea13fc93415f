"""The bell of a slot's folder: who joins rings, and the planning process, which waits for records, looks at once."""

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
    """Make the bell: a named pipe."""
    os.mkfifo(folder / _NAME, 0o600)


def notify(folder: Path) -> None:
    """Wake who waits. Where nobody does, there is nothing to do: whoever comes looks before waiting."""
    with suppress(OSError):
        bell = os.open(folder / _NAME, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(bell, b"!")
        finally:
            os.close(bell)


class Notification:
    """The bell, as heard in the process that waits.

    Args:
        folder: of the members' files. Without a bell in it waiting takes its time.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bell: int | None = None

    def wait(self, seconds: float) -> None:
        """Wait until it rings, so long at most. The first time not at all: who rang before there was anybody to hear it is to be looked for."""
        if self._bell is None:
            try:
                # Also for writing: where the last writer is gone, a pipe would have an end to tell again and again.
                self._bell = os.open(self._folder / _NAME, os.O_RDWR | os.O_NONBLOCK)
            except FileNotFoundError:
                time.sleep(seconds)
            return
        waiting = select.poll()
        waiting.register(self._bell, select.POLLIN)
        if waiting.poll(seconds * 1_000):
            with suppress(BlockingIOError):
                os.read(self._bell, _READ_BYTES)

"""Looks at something again and again from a thread of its own while a block runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from threading import Event, Thread
from types import TracebackType
from typing import Self


class Sampler(ABC):
    """Calls ``sample`` while the ``with`` block runs.

    Args:
        every_s: seconds between two looks.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._is_over = Event()
        self._thread = Thread(target=self._run, daemon=True)

    @abstractmethod
    def sample(self) -> None:
        """Look once."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(self._every_s):
            self.sample()

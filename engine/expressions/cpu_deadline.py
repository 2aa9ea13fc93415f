"""How long checking a definition may take. Whoever waits for it says when it is too long; every expression that is read or compiled asks.

A thread cannot be ended from outside, so the work ends itself. The bounds of a definition (``limits``) keep it within about a second; this
is for what they overlook.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class CpuDeadline(Protocol):
    """Who waits. Asked by one thread."""

    def begin(self) -> None:
        """Wait for a plan from now on."""

    def ask(self) -> None:
        """Go on, or raise ``DefinitionInvalid`` where the plan takes too long. Called often."""


_WAITING: ContextVar[CpuDeadline | None] = ContextVar("waiting", default=None)


@contextmanager
def cpu_deadline(waiting: CpuDeadline | None) -> Iterator[None]:
    """Let what is checked in the block ask whether to go on; None: it may take as long as it takes."""
    token = _WAITING.set(waiting)
    try:
        yield
    finally:
        _WAITING.reset(token)


def begin() -> None:
    """A plan begins."""
    waiting = _WAITING.get()
    if waiting is not None:
        waiting.begin()


def ask() -> None:
    """Go on, or raise what whoever waits wants raised."""
    waiting = _WAITING.get()
    if waiting is not None:
        waiting.ask()

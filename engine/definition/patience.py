"""How long checking a definition may take. Whoever waits for it says when it is too long; every expression that is compiled asks.

A thread cannot be ended from outside, so the work ends itself. The bounds of a definition (``limits``) keep it within about a second; this
is for what they overlook.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_ASKED: ContextVar[Callable[[], None] | None] = ContextVar("patience", default=None)


@contextmanager
def patience(asked: Callable[[], None]) -> Iterator[None]:
    """Let expressions that are compiled in the block, and in threads that it starts with its context, ask whether to go on.

    Args:
        asked: raises ``DefinitionInvalid`` where it takes too long; called often.
    """
    token = _ASKED.set(asked)
    try:
        yield
    finally:
        _ASKED.reset(token)


def ask() -> None:
    """Go on, or raise what whoever waits wants raised."""
    asked = _ASKED.get()
    if asked is not None:
        asked()

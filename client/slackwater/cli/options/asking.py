"""Ask before an action that cannot be undone."""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer

from slackwater.cli.options.failing import UsageError


def confirmed(question: str, *, yes: bool, counted: Callable[[], str] | None = None) -> bool:
    """Return whether to do it: ``--yes``, or a person at a terminal agrees.

    Args:
        question: for the person.
        yes: do not ask.
        counted: returns the question with numbers that need a request; only used for people.

    Raises:
        UsageError: there is no terminal to ask at.
    """
    if yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Nobody can be asked here", "give --yes where that is meant")
    return typer.confirm(question if counted is None else counted(), err=True)

"""Asking before something is done that cannot be undone."""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer

from slackwater.cli.options.failing import UsageError


def confirmed(question: str, *, yes: bool, counted: Callable[[], str] | None = None) -> bool:
    """Whether it shall be done: ``--yes``, or somebody at a terminal says so.

    Args:
        question: what is asked.
        yes: whether nobody needs to be asked.
        counted: gives the question with what only looking tells; for people alone.

    Raises:
        UsageError: nobody can be asked.
    """
    if yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Nobody can be asked here", "give --yes where that is meant")
    return typer.confirm(question if counted is None else counted(), err=True)

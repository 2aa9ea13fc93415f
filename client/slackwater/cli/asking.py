"""Asking before something is done that cannot be undone."""

from __future__ import annotations

import sys

import typer

from slackwater.cli.failing import Misused


def confirmed(question: str, *, yes: bool) -> bool:
    """Whether it shall be done: ``--yes``, or somebody at a terminal says so.

    Raises:
        Misused: nobody can be asked.
    """
    if yes:
        return True
    if not sys.stdin.isatty():
        raise Misused(f"{question} Nobody can be asked here", "give --yes where that is meant")
    return typer.confirm(question, err=True)

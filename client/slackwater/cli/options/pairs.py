"""Checks before any request: options that need or exclude another one, and the question before an action that cannot be undone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import typer

from slackwater.cli.options.failing import UsageError


def is_given(value: Any) -> bool:
    """Return whether an option is on the command line; 0 and an empty text are values."""
    return value is not None and value is not False and not (isinstance(value, list | tuple) and not value)


def need(option: str, others: Mapping[str, Any]) -> None:
    """Refuse options that have no effect without another one."""
    names = _named(others)
    if names:
        listed, says = _listed(names), "says" if len(names) == 1 else "say"
        raise UsageError(f"{listed} {says} nothing without {option}", f"add {option}, or leave {listed} out")


def exclude(option: str, others: Mapping[str, Any], why: str) -> None:
    """Refuse options that have no effect beside another one."""
    names = _named(others)
    if names:
        listed, has = _listed(names), "has" if len(names) == 1 else "have"
        either = f", or {option}" if option.startswith("--") else ""
        raise UsageError(f"{listed} {has} no say beside {option}: {why}", f"leave {listed} out{either}")


def _named(options: Mapping[str, Any]) -> list[str]:
    return [name for name, value in options.items() if is_given(value)]


def _listed(names: list[str]) -> str:
    return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1]


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

"""The service's commands as the program ``slackwater`` lists them. Imports nothing: other commands do not wait for the service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

_APPLICATION: Final = "app.cli.commands:application"
_THERE: Final = "leave that out; for another service run it on the machine of that one, with its settings (SLACKWATER_…)"


@dataclass(frozen=True, slots=True)
class ServiceCommand:
    """One command.

    Attributes:
        help: what it does, in a line.
        elsewhere: what to do where the service of another machine is meant.
        target: ``module:name`` of a function that returns the Typer application that has the command.
    """

    help: str
    elsewhere: str = _THERE
    target: str = _APPLICATION


COMMANDS: Final[Mapping[str, ServiceCommand]] = MappingProxyType({
    "serve": ServiceCommand("Start everything: the database if none is given, its migrations, the HTTP service and one driver."),
    "doctor": ServiceCommand("Look for what would keep the service from running, and say how to mend it."),
    "migrate": ServiceCommand("Bring the database's schema to this version."),
    "config": ServiceCommand("What the service is told."),
    "keys": ServiceCommand(
        "API keys: who may read, write and administer.",
        f"{_THERE}, or use /v1/api-keys with an administrator's key",
    ),
    "test": ServiceCommand(
        "Run tests of queries: definitions, records, expected results.",
        "say behind it on which service the tests run: slackwater test FILES --url URL; the key is SLACKWATER_API_KEY",
    ),
    "backup": ServiceCommand("Copy the database and the state of all queries, of one moment."),
    "restore": ServiceCommand("Put a backup back, into an empty database and an empty data directory."),
})  # fmt: skip
"""By name. A test compares it with the application."""

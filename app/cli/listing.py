"""The service's commands in the list of the program ``slackwater``. Imports nothing, so that other commands start fast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

_APPLICATION: Final = "app.cli.commands:application"
_THERE: Final = "leave that out; for another service, run the command on its machine, with its settings (SLACKWATER_…)"


@dataclass(frozen=True, slots=True)
class ServiceCommand:
    """One command.

    Attributes:
        help: one line.
        elsewhere: what to do for the service of another machine.
        target: ``module:name`` of a function that returns the Typer application of the command.
    """

    help: str
    elsewhere: str = _THERE
    target: str = _APPLICATION


COMMANDS: Final[Mapping[str, ServiceCommand]] = MappingProxyType({
    "serve": ServiceCommand("Start everything: the database if none is given, its migrations, the HTTP service and one driver."),
    "doctor": ServiceCommand("Find faults that keep the service from running, and say how to fix them."),
    "migrate": ServiceCommand("Migrate the database's schema to this version."),
    "config": ServiceCommand("Settings of the service."),
    "keys": ServiceCommand(
        "API keys: who may read, write and administer.",
        f"{_THERE}, or use /v1/api-keys with an administrator's key",
    ),
    "test": ServiceCommand(
        "Run tests of queries: definitions, records, expected results.",
        "add the service on which the tests run: slackwater test FILES --url URL; the key is SLACKWATER_API_KEY",
    ),
    "backup": ServiceCommand("Copy the database and the state of all queries, as of one moment."),
    "restore": ServiceCommand("Restore a backup into an empty database and an empty data directory."),
})  # fmt: skip
"""By name. A test compares it with the application."""

"""The current settings: read from the environment once, and listed with the origin of each value.

Every setting is an environment variable: ``SLACKWATER_PORT=9090``, nested ones with two underscores
(``SLACKWATER_SPARK__DRIVER_MEMORY=4g``). A variable with our prefix that names no setting is an error: a typo must not pass silently.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel
from slackwater.settings import VARIABLES as CLIENT_VARIABLES

from app.settings.settings import ENV_PREFIX, NESTING, Settings
from engine.definition.connections.secret import VARIABLES


class UnknownSetting(ValueError):
    """An environment variable with our prefix names no setting."""


@dataclass(frozen=True, slots=True)
class Effective:
    """One setting with its current value.

    Attributes:
        name: dotted path, such as ``spark.master``.
        variable: the environment variable that sets it.
        value: its text; secrets are masked.
        origin: of the value.
    """

    name: str
    variable: str
    value: str
    origin: Literal["environment", "default", "command line"]


def load_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """Read the settings from the environment.

    Raises:
        UnknownSetting: a variable with our prefix names no setting.
        pydantic.ValidationError: a value is not valid for its setting.
    """
    present = os.environ if environment is None else environment
    known = {variable for _, variable, _ in _single_settings(Settings.model_construct())}
    unknown = sorted(
        name
        for name in present
        # Users choose the rest of the names of variables that `env:NAME` of connections reads.
        if name.upper().startswith(ENV_PREFIX)
        and name.upper() not in known
        and not name.startswith(VARIABLES)
        and name.upper() not in CLIENT_VARIABLES
    )
    if unknown:
        raise UnknownSetting(f"{', '.join(unknown)}: no such setting; `slackwater config show` lists all of them")
    return Settings()


def effective(settings: Settings, environment: Mapping[str, str], overridden: frozenset[str] = frozenset()) -> list[Effective]:
    """Return every setting with its value and origin; ``overridden`` names those from the command line."""
    present = {name.upper() for name, value in environment.items() if value != ""}
    rows = []
    for name, variable, value in _single_settings(settings):
        origin: Literal["environment", "default", "command line"] = "environment" if variable in present else "default"
        if name in overridden:
            origin = "command line"
        rows.append(Effective(name, variable, "" if value is None else str(value), origin))
    return rows


def in_force(settings: Settings) -> list[Effective]:
    """Return the settings of a running service. Values that are not from the environment were set at its start.

    An embedded database is not a setting: `database_url` is empty then.
    """
    values_of_environment = {name: value for name, _, value in _single_settings(Settings())}
    shown = settings if values_of_environment["database_url"] is not None else settings.model_copy(update={"database_url": None})
    overridden = frozenset(name for name, _, value in _single_settings(shown) if value != values_of_environment[name])
    return effective(shown, os.environ, overridden)


def _single_settings(model: BaseModel, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str, object]]:
    for name in type(model).model_fields:
        value = getattr(model, name)
        here = (*path, name)
        if isinstance(value, BaseModel):
            yield from _single_settings(value, here)
        else:
            yield ".".join(here), ENV_PREFIX + NESTING.join(here).upper(), value

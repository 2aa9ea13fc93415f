"""Checks whether the stored secrets can be decrypted with the configured key, for `slackwater doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg

from engine.connections.keys import SecretKeys, SecretUnreadable
from engine.connections.stored import Stored

_EXISTS = "SELECT to_regclass('slackwater.connection') IS NOT NULL"
_ALL = "SELECT name, type, definition, secrets FROM slackwater.connection WHERE secrets <> '{}' ORDER BY name"


@dataclass(frozen=True, slots=True)
class SecretsCheck:
    """Result of the check.

    Attributes:
        connections: number of connections with stored secrets.
        unreadable: name and reason of each connection that cannot be decrypted.
        of_former_keys: names of connections that are encrypted with another key than the first.
    """

    connections: int
    unreadable: tuple[str, ...]
    of_former_keys: tuple[str, ...]


def look_at_secrets(connection: psycopg.Connection[Any], keys: SecretKeys | None) -> SecretsCheck:
    """Decrypt every secret and discard it."""
    exists = connection.execute(_EXISTS).fetchone()
    rows = connection.execute(_ALL).fetchall() if exists is not None and exists[0] else []
    unreadable, former = [], []
    for row in rows:
        stored = Stored(*row)
        try:
            for pointer, text in stored.secrets.items():
                _decrypt(stored, pointer, keys)
                if keys is not None and not keys.is_first(text) and stored.name not in former:
                    former.append(stored.name)
        except SecretUnreadable as error:
            unreadable.append(f"{stored.name}: {error}")
    return SecretsCheck(len(rows), tuple(unreadable), tuple(former))


def _decrypt(stored: Stored, pointer: str, keys: SecretKeys | None) -> None:
    if keys is None:
        raise SecretUnreadable(f"{pointer} is encrypted, and SLACKWATER_SECRET_KEY is not set")
    keys.decrypt(stored.secrets[pointer], stored.place(pointer))

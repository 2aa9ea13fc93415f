"""API keys as tests need them: put into the database, for the service makes none over HTTP without one."""

from __future__ import annotations

from collections.abc import Iterable

import psycopg

from app.access.rules import make_key


def store_keys(dsn: str, keys: Iterable[tuple[str, str, list[str] | None]]) -> dict[str, str]:
    """Put keys in the place of all others.

    Args:
        dsn: of the service's database.
        keys: name, role and scope of each.

    Returns:
        Their texts, by name.
    """
    texts = {}
    with psycopg.connect(dsn) as connection:
        connection.execute("TRUNCATE slackwater.api_key")
        for name, role, scope in keys:
            made = make_key()
            connection.execute(
                "INSERT INTO slackwater.api_key (id, name, prefix, digest, role, scope) VALUES (gen_random_uuid(), %s, %s, %s, %s, %s)",
                (name, made.prefix, made.digest, role, scope),
            )
            texts[name] = made.text
    return texts

"""A shop's database: somebody orders, changes their mind, and goes, in a Postgres with logical decoding."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import psycopg

TABLE = """
    CREATE TABLE orders (id bigint PRIMARY KEY, customer text, total numeric(10, 2));
    ALTER TABLE orders REPLICA IDENTITY FULL
"""


def programs() -> Path | None:
    """Return a directory with ``initdb`` and ``pg_ctl``; None: there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    return found[-1].parent if found else None


def work(connection: psycopg.Connection[Any], draw: random.Random, steps: int) -> int:
    """Change rows, some of them several times in a transaction, some by their keys; returns how many rows changed."""
    changed = 0
    for _ in range(steps):
        with connection.transaction():
            for _ in range(draw.randint(1, 4)):
                number, other = draw.randint(1, 30), draw.randint(1, 30)
                match draw.choice(("put", "put", "put", "delete", "move")):
                    case "put":
                        statement = (
                            "INSERT INTO orders VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE "
                            "SET customer = excluded.customer, total = excluded.total"
                        )
                        values: tuple[Any, ...] = (number, f"customer {draw.random()}", draw.randint(-999, 99_999) / 100)
                    case "delete":
                        statement, values = "DELETE FROM orders WHERE id = %s", (number,)
                    case _:
                        statement = "UPDATE orders SET id = %s WHERE id = %s AND NOT EXISTS (SELECT FROM orders WHERE id = %s)"
                        values = (other, number, other)
                changed += connection.execute(statement, values).rowcount
    return changed


def rows(connection: psycopg.Connection[Any]) -> dict[int, tuple[str, str]]:
    """Return the table."""
    return {number: (customer, str(total)) for number, customer, total in connection.execute("SELECT * FROM orders")}

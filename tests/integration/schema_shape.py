"""What code that knows an earlier schema relies on, and what a migration takes away from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg

OURS = "('slackwater', 'log')"
COLUMNS = f"""
    SELECT n.nspname || '.' || c.relname, a.attname,
        format_type(a.atttypid, a.atttypmod), a.attnotnull, a.atthasdef OR a.attidentity <> '' AS has_default
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname IN {OURS} AND c.relkind IN ('r', 'p', 'v') AND a.attnum > 0 AND NOT a.attisdropped
"""
UNIQUE = f"""
    SELECT n.nspname || '.' || c.relname,
        (SELECT array_agg(a.attname ORDER BY a.attname) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum = ANY (i.indkey::int2[])),
        coalesce(pg_get_expr(i.indpred, i.indrelid), '')
    FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname IN {OURS} AND i.indisunique
"""
RULES = f"""
    SELECT n.nspname || '.' || c.relname, pg_get_constraintdef(k.oid)
    FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname IN {OURS} AND k.contype IN ('c', 'f', 'x')
"""
TRIGGERS = f"""
    SELECT n.nspname || '.' || c.relname || ' ' || t.tgname
    FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname IN {OURS} AND NOT t.tgisinternal
"""
FUNCTIONS = f"""
    SELECT p.oid::regprocedure::text || ' ' || p.prorettype::regtype FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname IN {OURS}
"""


@dataclass(frozen=True)
class Shape:
    """A schema as statements see it.

    Attributes:
        columns: (table, column) → (type, not null, has a default).
        unique: (table, columns, condition): what ON CONFLICT may name, and what may refuse a row.
        rules: (table, constraint) of checks, foreign keys and exclusions.
        named: triggers and functions.
    """

    columns: dict[tuple[str, str], tuple[str, bool, bool]]
    unique: frozenset[tuple[str, tuple[str, ...], str]]
    rules: frozenset[tuple[str, str]]
    named: frozenset[str]

    @property
    def tables(self) -> set[str]:
        return {table for table, _ in self.columns}


def shape_of(connection: psycopg.Connection[Any]) -> Shape:
    columns = {(row[0], row[1]): tuple(row[2:]) for row in connection.execute(COLUMNS)}
    unique = frozenset((table, tuple(names or ()), condition) for table, names, condition in connection.execute(UNIQUE))
    rules = frozenset((table, rule) for table, rule in connection.execute(RULES))
    named = frozenset(row[0] for query in (TRIGGERS, FUNCTIONS) for row in connection.execute(query))
    return Shape(columns, unique, rules, named)


def taken_away(before: Shape, after: Shape) -> list[str]:
    """Say what code that knows ``before`` misses in ``after``, or is refused there. Empty: the change only adds."""
    found = [f"gone: {' '.join(name)}" for name in before.columns.keys() - after.columns.keys()]
    for name in before.columns.keys() & after.columns.keys():
        (kind, _, had_default), (new_kind, is_required, has_default) = before.columns[name], after.columns[name]
        if kind != new_kind:
            found.append(f"{' '.join(name)} was {kind} and is {new_kind}")
        if (is_required and not before.columns[name][1]) or (had_default and not has_default):
            found.append(f"{' '.join(name)} must be given now")
    for name in after.columns.keys() - before.columns.keys():
        _, is_required, has_default = after.columns[name]
        if name[0] in before.tables and is_required and not has_default:
            found.append(f"the new {' '.join(name)} must be given")
    found += [f"gone: unique {each}" for each in before.unique - after.unique]
    found += [f"may refuse rows: unique {each}" for each in after.unique - before.unique if each[0] in before.tables]
    found += [f"may refuse rows: {each}" for each in after.rules - before.rules if each[0] in before.tables]
    return found + [f"gone: {each}" for each in before.named - after.named]

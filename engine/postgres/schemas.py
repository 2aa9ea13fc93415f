"""The names of our schemas in Postgres, with a prefix that separates them from another installation's in the same database.

Every statement is written with the names of an installation without a prefix: ``log.batch``, ``LISTEN slackwater_fact``. The prefix is a part
of the DSN (``options=-c slackwater.schema_prefix=acme_``), so every process with the DSN has it, workers of Spark too. Connections
of ``engine.postgres.links`` read it there, and their cursors translate statements: ``acme_log.batch``. Without a prefix nothing is
translated. Users' names and values (columns, tables, values) are quoted or parameters, and never translated.

A schema's name is found

- before a dot: ``log.batch``; ``sql.Identifier("views", name)``,
- at the beginning of a literal with a table's name: ``to_regclass('log.batch')``, ``format('history.%I', …)``,
- before ``::regnamespace``: ``'views'::regnamespace``,
- after ``SCHEMA``: ``CREATE SCHEMA IF NOT EXISTS log``.

A channel is found as a separate word or literal. A test refuses statements that name a schema in another way.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final, Self
from urllib.parse import quote, unquote

import psycopg
from psycopg import sql
from psycopg.abc import Params, Query
from psycopg.conninfo import conninfo_to_dict
from psycopg.copy import AsyncWriter, Writer
from psycopg.rows import Row

SCHEMAS: Final = ("slackwater", "log", "views", "history", "open")
CHANNELS: Final = ("slackwater_desired_state", "slackwater_fact", "slackwater_commit")
PREFIX: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")
"""Postgres cuts names at 63 bytes: with a prefix of 32 characters ours fit."""
PREFIX_RULE: Final = "1 to 32 of a-z, 0-9 and _, a letter first, and not pg_, which Postgres keeps for itself"
OPTION: Final = "slackwater.schema_prefix"
_GIVEN: Final = re.compile(rf"(?:-c\s*|--){re.escape(OPTION)}=(\S*)\s*")

_SCHEMA = "|".join(SCHEMAS)
_CHANNEL = "|".join(CHANNELS)
_TOKEN: Final = re.compile(
    rf"""
      --[^\n]* | /\*.*?\*/ | "(?:[^"]|"")*"
    | '(?P<table>(?:{_SCHEMA})\.[\w%]+|{_CHANNEL})'
    | '(?P<namespace>{_SCHEMA})'(?=::regnamespace)
    | '(?:[^']|'')*'
    | (?<![\w.$])(?P<word>(?:{_SCHEMA})(?=\.)|(?:{_CHANNEL})\b)
    | (?<=\bSCHEMA\s)(?P<condition>IF\s+(?:NOT\s+)?EXISTS\s+)?(?P<schema>{_SCHEMA})\b
    """,
    re.VERBOSE | re.DOTALL,
)
_QUALIFIED: Final = re.compile(rf'"(?=(?:{_SCHEMA})"\.")')
_LOCK_BITS: Final = 20


class BadPrefix(ValueError):
    """A prefix is not allowed; the message says which are."""

    def __init__(self, prefix: str) -> None:
        super().__init__(f"{prefix!r}: not a prefix for schemas; it takes {PREFIX_RULE}")


@dataclass(frozen=True, slots=True)
class Schemas:
    """One installation's schemas.

    Attributes:
        prefix: before each of their names; empty: none.

    Raises:
        BadPrefix: see there.
    """

    prefix: str = ""

    def __post_init__(self) -> None:
        if self.prefix and (not PREFIX.fullmatch(self.prefix) or self.prefix.startswith("pg_")):
            raise BadPrefix(self.prefix)

    @classmethod
    def of(cls, dsn: str) -> Self:
        """Read them from a DSN; without the option there is no prefix."""
        return cls.of_options(str(conninfo_to_dict(dsn).get("options") or ""))

    @classmethod
    def of_options(cls, options: str) -> Self:
        """Read them from a connection's ``options``; of several prefixes the last one counts."""
        return cls((_GIVEN.findall(options) or [""])[-1])

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, as Postgres knows them."""
        return tuple(map(self.named, SCHEMAS))

    def named(self, schema: str) -> str:
        """Return a schema's name in Postgres."""
        return f"{self.prefix}{schema}"

    def carried_by(self, url: str) -> str:
        """Return the URL of a database with this prefix instead of another one; without a prefix the URL is unchanged."""
        if not self.prefix:
            return url
        address, _, query = url.partition("?")
        given = [part.partition("=") for part in query.split("&") if part]
        options = " ".join(unquote(value) for name, _, value in given if name == "options")
        options = f"{_GIVEN.sub('', options).strip()} -c {OPTION}={self.prefix}".strip()
        others = ["".join(part) for part in given if part[0] != "options"]
        return f"{address}?{'&'.join([*others, f'options={quote(options)}'])}"

    def lock(self, number: int) -> int:
        """Return the key of an advisory lock for this installation, because all connections to a database share these keys.

        Args:
            number: of the lock; below 2 to the 20th.
        """
        if not self.prefix:
            return number
        return int.from_bytes(hashlib.blake2b(self.prefix.encode(), digest_size=5).digest()) << _LOCK_BITS | number

    def text(self, statement: str) -> str:
        return _translated(self.prefix, statement) if self.prefix else statement

    def statement(self, query: Query | sql.Composable, context: psycopg.abc.AdaptContext | None) -> str:
        """Translate a statement of psycopg, part by part if it is composed: names and values of users are unchanged."""
        if isinstance(query, str):
            return self.text(query)
        if isinstance(query, sql.Composable):
            return "".join(self._parts(query, context))
        raise TypeError(f"a statement of {type(query).__name__} cannot be translated; pass a str or a psycopg.sql.Composable")

    def _parts(self, query: sql.Composable, context: psycopg.abc.AdaptContext | None) -> Iterator[str]:
        match query:
            case sql.Composed():
                for part in query:
                    yield from self._parts(part, context)
            case sql.SQL():
                yield self.text(query.as_string(context))
            case sql.Identifier():
                yield _QUALIFIED.sub(f'"{self.prefix}', query.as_string(context), count=1)
            case _:
                yield query.as_string(context)


@lru_cache(maxsize=512)  # a statement for a table with many columns may have 100 KB
def _translated(prefix: str, statement: str) -> str:
    def named(found: re.Match[str]) -> str:
        kind = found.lastgroup
        if kind is None:
            return found[0]
        at = found.start(kind) - found.start()
        return found[0][:at] + prefix + found[0][at:]

    return _TOKEN.sub(named, statement)


class Named:
    """A connection that knows its schemas."""

    schemas: Schemas = Schemas()


def schemas_of(connection: psycopg.BaseConnection[Any]) -> Schemas:
    """Return the schemas of a connection."""
    if isinstance(connection, Named):
        return connection.schemas
    return Schemas.of_options(connection.info.get_parameters().get("options", ""))


@cache
def cursor_for(schemas: Schemas) -> type[psycopg.Cursor[Any]]:
    """Return the class of cursors that translate their statements."""

    class SchemaCursor(psycopg.Cursor[Row]):
        def execute(
            self, query: Query, params: Params | None = None, *, prepare: bool | None = None, binary: bool | None = None
        ) -> Self:
            return super().execute(schemas.statement(query, self), params, prepare=prepare, binary=binary)

        def executemany(self, query: Query, params_seq: Iterable[Params], *, returning: bool = False) -> None:
            super().executemany(schemas.statement(query, self), params_seq, returning=returning)

        def stream(
            self, query: Query, params: Params | None = None, *, binary: bool | None = None, size: int = 1
        ) -> Iterator[Row]:
            return super().stream(schemas.statement(query, self), params, binary=binary, size=size)

        @contextmanager
        def copy(self, statement: Query, params: Params | None = None, *, writer: Writer | None = None) -> Iterator[psycopg.Copy]:
            with super().copy(schemas.statement(statement, self), params, writer=writer) as copy:
                yield copy

    return SchemaCursor


@cache
def async_cursor_for(schemas: Schemas) -> type[psycopg.AsyncCursor[Any]]:
    """Return the asynchronous form of ``cursor_for``."""

    class AsyncSchemaCursor(psycopg.AsyncCursor[Row]):
        async def execute(
            self, query: Query, params: Params | None = None, *, prepare: bool | None = None, binary: bool | None = None
        ) -> Self:
            return await super().execute(schemas.statement(query, self), params, prepare=prepare, binary=binary)

        async def executemany(self, query: Query, params_seq: Iterable[Params], *, returning: bool = False) -> None:
            await super().executemany(schemas.statement(query, self), params_seq, returning=returning)

        def stream(
            self, query: Query, params: Params | None = None, *, binary: bool | None = None, size: int = 1
        ) -> AsyncIterator[Row]:
            return super().stream(schemas.statement(query, self), params, binary=binary, size=size)

        @asynccontextmanager
        async def copy(
            self, statement: Query, params: Params | None = None, *, writer: AsyncWriter | None = None
        ) -> AsyncIterator[psycopg.AsyncCopy]:
            async with super().copy(schemas.statement(statement, self), params, writer=writer) as copy:
                yield copy

    return AsyncSchemaCursor

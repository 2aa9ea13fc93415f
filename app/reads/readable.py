"""Materialised tables for pull reads: the schema of a table is kept in memory; its position comes from the statement that reads its rows.

A read is one statement on an autocommit connection, hence one snapshot: its position belongs to its rows. Columns and
key of a table come from memory. The statement returns the versions of the relation and of its query too; so a table that was
edited, deleted or created again meanwhile is detected, looked up again, and read again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import sqlalchemy as sa

from app.catalog.relations.materialisations import materialisation_of, materialised_output
from app.catalog.stored.catalog import output_of
from app.catalog.stored.relations import RelationRow, find_relation_async, of_kind
from app.db.admission import AdmissionLimits
from app.db.database import Database
from app.db.shared_reads import SharedReads
from app.db.tables import query
from app.errors.app_errors import AppError, Conflict, Fault, Unavailable, Unprocessable
from app.settings.limit_settings import LimitSettings
from engine.plan.model import Output

TOO_LARGE = "answer_too_large"
"""The outcome of a key whose row, with those of earlier keys, is over the limit of one answer."""

STATEMENTS_KEPT = 256
"""Statement texts per table. Clients repeat few shapes of reads; a client that invents shapes does not fill the memory."""

_ATTEMPTS = 3
_HEAD = """
    SELECT r.version AS relation_version, q.version AS query_version,
        CASE WHEN s.state <> 'running' OR s.lease_expires_at > now() THEN s.state END AS state,
        coalesce(c.position::text, (r.kept->'position')::text, '{}') AS position,
        coalesce(c.stream_time_ms, (r.kept->>'stream_time_ms')::bigint) AS stream_time_ms,
        coalesce(c.committed_at, (r.kept->>'committed_at')::timestamptz) AS committed_at,
        extract(epoch FROM clock_timestamp() - coalesce(c.committed_at, (r.kept->>'committed_at')::timestamptz))::float8 AS age_s
    FROM slackwater.relation r
    LEFT JOIN slackwater.query q ON q.id = %(query)s AND q.deleted_at IS NULL
    LEFT JOIN slackwater.query_status s ON s.query_id = q.id
    LEFT JOIN log.commit c ON c.query_id = q.id AND c.checkpoint_id = q.checkpoint_id
    WHERE r.id = %(relation)s
"""
_HEAD_COLUMNS = 7
HEAD_ONLY = _HEAD
"""The statement of a read without rows."""


def with_head(body: str) -> str:
    """Return a statement for ``body`` and the position; ``body`` may read ``h.stream_time_ms`` and returns one row."""
    return f"SELECT h.*, f.* FROM ({_HEAD}) h CROSS JOIN LATERAL ({body}) f"  # noqa: S608 - the caller's statement, not its values


@dataclass(slots=True)
class ReadableTable:
    """A table as it was looked up.

    Attributes:
        query: name of the query that writes it; None if it outlived its query.
        statements: statement texts by shape.
        shared: by statement, its shared reads.
    """

    relation_id: UUID
    relation_version: int
    query_id: UUID | None
    query_version: int | None
    query: str | None
    output: Output
    statements: dict[Any, str] = field(default_factory=dict)
    shared: dict[str, SharedReads] = field(default_factory=dict)

    def statement(self, shape: Any, build: Callable[[], str]) -> str:
        """Return the text of a statement, built once per shape."""
        text = self.statements.get(shape)
        if text is None:
            if len(self.statements) >= STATEMENTS_KEPT:
                self.statements.clear()
            text = self.statements[shape] = build()
        return text


@dataclass(frozen=True, slots=True)
class Head:
    """The position of a table.

    Attributes:
        position: JSON text: feed to partition to next offset.
        state: of the query that writes it; None without a query, and if its driver sends no heartbeat.
        age_s: seconds since the last commit, by the database's clock.
    """

    position: str
    stream_time_ms: int | None
    committed_at: datetime | None
    state: str | None
    age_s: float | None

    @property
    def is_stale(self) -> bool:
        """Whether no new rows come: the query that writes it does not run."""
        return self.state != "running"

    def horizon_ms(self, output: Output) -> int | None:
        """Return the start of the retained history: T - R (V4); None for an unversioned table, and before the first record."""
        retention = output.history_retention_ms
        return None if retention is None or self.stream_time_ms is None else self.stream_time_ms - retention


@dataclass(frozen=True, slots=True)
class Ask:
    """One statement made with ``with_head``, and the parameters of its body.

    Attributes:
        one_key: the only key of a statement that takes a list of keys as ``%(k0)s`` and returns lists of as many values. Reads that
            differ only in the key share one statement.
        is_scan: the statement may read many rows; it has a limit of its own, so that reads by key never wait for it.
    """

    statement: str
    params: Mapping[str, Any]
    is_binary: bool = False
    one_key: Any = None
    is_scan: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of a read: the body's columns."""

    table: ReadableTable
    head: Head
    values: tuple[Any, ...]


class Readables:
    """The tables of one database that can be read. Safe for concurrent reads of one event loop."""

    def __init__(self, database: Database, gates: AdmissionLimits, limits: LimitSettings) -> None:
        self._database = database
        self._gates = gates
        self._bounds = {"page_bytes": limits.page_bytes, "answer_bytes": limits.answer_bytes}
        self._known: dict[str, ReadableTable] = {}

    async def read(self, name: str, ask: Callable[[ReadableTable], Ask]) -> Reading:
        """Read from a table.

        Args:
            name: the table.
            ask: makes the statement, and raises for an impossible request; called again if the table has changed.

        Raises:
            NotFound: ``relation_not_found``.
            Conflict: ``table_not_materialised``.
            TooManyRequests: ``too_many_requests``.
            Unavailable: ``relation_changing``.
            Unprocessable: ``answer_too_large``.
            psycopg.DataError: a parameter is not of its column's type; only the text of a cursor can be.
            psycopg.errors.QueryCanceled: the statement took too long.
        """
        for _ in range(_ATTEMPTS):
            known = self._known.get(name)
            table = known
            if table is None:
                with self._gates.rows.passed():
                    table = await self._look_up(name)
            try:
                request = ask(table)
            except AppError:
                if known is None:
                    raise
                self._known.pop(name, None)  # the request may be valid for the changed table
                continue
            gate = self._gates.scans if request.is_scan else self._gates.rows
            gate.enter()
            try:
                row = await (self._fetch(request, table) if request.one_key is None else self._fetch_shared(request, table))
            except psycopg.errors.ProgramLimitExceeded as error:  # 1 GB of text, before the statement could measure it
                raise self.too_large(name, "?limit", "ask for fewer rows with a smaller `limit`") from error
            except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn, psycopg.errors.UndefinedFunction):
                row = None  # dropped, or created again with other columns, since it was looked up
            finally:
                gate.leave()
            if row is not None and row[0] == table.relation_version and row[1] == table.query_version:
                return Reading(table, Head(row[3], row[4], _utc(row[5]), row[2], row[6]), row[_HEAD_COLUMNS:])
            self._known.pop(name, None)
        raise Unavailable("relation_changing", f"'{name}' is being changed; try again", headers={"Retry-After": "1"})

    def too_large(self, name: str, pointer: str, cure: str) -> Unprocessable:
        """Return the error for an answer over the limit that cannot be split into pages."""
        most = f"{self._bounds['answer_bytes']:,} bytes (SLACKWATER_LIMITS__ANSWER_BYTES)"
        detail = f"these rows of '{name}' hold more than one answer may, {most}; {cure}"
        return Unprocessable("answer_too_large", detail, [Fault(pointer, "answer_too_large", detail)])

    async def _fetch(self, request: Ask, table: ReadableTable) -> tuple[Any, ...] | None:
        params = {**request.params, **self._bounds, "relation": table.relation_id, "query": table.query_id}
        pool = self._database.scans if request.is_scan else self._database.lookups
        has_died = False
        for _ in range(pool.max_size + 2):  # each connection may have a prepared statement for the old table
            async with pool.connection() as connection:
                try:
                    cursor = connection.cursor(binary=request.is_binary)
                    await cursor.execute(request.statement, params, prepare=True)
                    return await cursor.fetchone()
                except psycopg.errors.FeatureNotSupported:
                    # The table was created again with columns of other types; this connection has prepared the statement with the old ones.
                    await connection.close()
                except psycopg.OperationalError:
                    # The connection died just now: the pool makes another.
                    if has_died or not connection.closed:
                        raise
                    has_died = True
        return None

    async def _fetch_shared(self, request: Ask, table: ReadableTable) -> tuple[Any, ...] | None:
        shared = table.shared.get(request.statement)
        if shared is None:

            async def fetch(keys: list[Any]) -> tuple[Any, ...] | None:
                return await self._fetch(Ask(request.statement, {**request.params, "k0": keys}), table)

            shared = table.shared[request.statement] = SharedReads(fetch, _of_one_key, _is_too_large)
        return await shared.read(request.one_key)

    async def _look_up(self, name: str) -> ReadableTable:
        async with self._database.reads.connect() as connection:
            relation = of_kind(await find_relation_async(connection, name), "table", name)
            writer, output = written(relation)
            columns = query.c.id, query.c.version
            statement = sa.select(*columns).where(query.c.name == writer, query.c.deleted_at.is_(None))
            row = (await connection.execute(statement)).one_or_none()
        query_id, version = (None, None) if row is None else row
        table = ReadableTable(relation.id, relation.version, query_id, version, writer, output)
        self._known[name] = table
        return table


def written(relation: RelationRow) -> tuple[str | None, Output]:
    """Return the query that writes a table's rows (None for a result that outlived its query), and the output they are stored as.

    Raises:
        Conflict: ``table_not_materialised``.
    """
    if relation.origin == "derived":
        return relation.produced_by, output_of(relation.definition)
    output = materialised_output(relation)
    if output is None:
        raise not_materialised(relation)
    return materialisation_of(relation.name), output


def not_materialised(relation: RelationRow) -> Conflict:
    return Conflict(
        "table_not_materialised",
        f"'{relation.name}' is a source whose rows are not stored. PUT /v1/tables/{relation.name} with \"materialize\": true stores "
        f'them for reading; or POST /v1/queries with "into": {{"table": …}} and read that table',
    )


def _of_one_key(row: tuple[Any, ...], place: int) -> tuple[Any, ...]:
    return *row[:_HEAD_COLUMNS], *(values[place] for values in row[_HEAD_COLUMNS:])


def _is_too_large(row: tuple[Any, ...]) -> bool:
    return TOO_LARGE in row[_HEAD_COLUMNS]


def _utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.astimezone(UTC)

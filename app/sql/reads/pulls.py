"""Pull queries: SELECT without EMIT, answered once from committed rows.

The database evaluates keys and ranges (``pushed``), a page at a time. The whole WHERE and the items are computed here, by
the compiler that queries use.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import polars as pl
import psycopg

from app.errors.app_errors import Fault, TooExpensive, Unprocessable
from app.following.changes import ChangeSource
from app.following.followed import Followables
from app.following.tails.tails import Tails
from app.http.answers.database_errors import read_too_expensive
from app.http.answers.negotiation import arrow_batch
from app.http.answers.record_json import encode_values
from app.http.parameters import Services, planned
from app.http.values import MAX_INSTANT_MS, instant, parse_value
from app.reads.freshness import parse_freshness, read_fresh
from app.reads.readable import HEAD_ONLY, Ask, Readables, ReadableTable, Reading
from app.reads.row_filters import MAX_FILTERS, MAX_LISTED, Comparison, Operator
from app.reads.row_reads import missing, not_versioned
from app.reads.rows import RowsShape, State, marks_of, parameters, rows_statement
from app.sql.catalog.following import following
from engine.expressions.expressions import compile_scalar
from engine.expressions.types.types import BOOLEAN, TIMESTAMP, ColumnType, Schema
from engine.plan.catalog import CatalogEntry
from engine.plan.model import Output
from engine.sql.tree import Binary, Boolean, Call, Chain, Column, In, Negative, Node, Number, Text
from engine.statements.reads.reading import OwnedRead


@dataclass(frozen=True, slots=True)
class ResultRows:
    """Rows of a result.

    Attributes:
        key: names of the columns that identify rows.
        position: of the table, as JSON; None: a stream was read.
    """

    columns: Schema
    key: tuple[str, ...]
    frame: pl.DataFrame
    position: str | None = None

    def texts(self) -> Sequence[str]:
        return encode_values(self.frame, self.columns, has_text_numbers=False)


class RowReader:
    """Applies the expressions of a SELECT to rows."""

    def __init__(self, read: OwnedRead) -> None:
        self._read = read
        self._condition = None if read.condition is None else compile_scalar(read.condition, read.frame).expr
        self._columns = [compile_scalar(text, read.frame).expr.alias(name) for name, text in read.columns]

    @property
    def values(self) -> tuple[str, ...]:
        """Names of the result's columns that are not in the relation's key."""
        return tuple(name for name in self._read.types.names if name not in self._read.key)

    def selected(self, rows: pl.DataFrame, beside: Mapping[str, pl.Expr] | None = None) -> pl.DataFrame:
        """Return the rows that fulfil WHERE.

        Args:
            rows: the relation's columns by their own names, and pseudo-columns; missing ones are null.
            beside: additional columns.
        """
        named = self._named(rows, beside or {})
        return named if self._condition is None else named.filter(self._condition.cast(BOOLEAN.polars).fill_null(value=False))

    def shown(self, kept: pl.DataFrame) -> pl.DataFrame:
        """Return the selected columns of rows that fulfil WHERE."""
        return kept.select(self._columns)

    def _named(self, rows: pl.DataFrame, beside: Mapping[str, pl.Expr]) -> pl.DataFrame:
        prefix = f"{self._read.alias}."
        columns = [
            pl.col(name.removeprefix(prefix)).cast(kind.polars).alias(name)
            if name.removeprefix(prefix) in rows.columns
            else pl.lit(None, dtype=kind.polars).alias(name)
            for name, kind in self._read.frame.items()
        ]
        return rows.select(*columns, **beside)


PAGE_ROWS = 10_000
FEWER = "ask for fewer rows with LIMIT or WHERE"
EVENT_TIME = "$event_time_ms"


async def pull(services: Services, read: OwnedRead, until: float | None = None) -> ResultRows:
    """Answer a pull query.

    Args:
        services: of this application.
        read: the query.
        until: deadline by the clock of the event loop; None: `SqlSettings.read_seconds` from now.

    Raises:
        AppError: the relation cannot be read, the answer would be too large, or the query took too long.
    """
    try:
        async with asyncio.timeout_at(reads_end(services) if until is None else until):
            return await _answered(services, read)
    except TimeoutError as error:
        raise reads_too_long(services) from error


def reads_end(services: Services) -> float:
    """Return the deadline of reads that begin now, by the clock of the event loop."""
    return asyncio.get_running_loop().time() + services.settings.sql.read_seconds


def reads_too_long(services: Services) -> TooExpensive:
    """Return the error for a read past its deadline."""
    detail = (
        f"reads without EMIT took longer than {services.settings.sql.read_seconds:g} s (SLACKWATER_SQL__READ_SECONDS); "
        f"{FEWER}, compute less for each row, or send fewer statements at once"
    )
    return TooExpensive("read_too_expensive", detail, [Fault("/sql", "read_too_expensive", detail)])


async def _answered(services: Services, read: OwnedRead) -> ResultRows:
    reader = await planned(services, partial(RowReader, read))
    frames: list[pl.DataFrame] = []
    height = size = 0
    position: str | None = None
    if read.limit != 0:
        pages = _rows(services, read) if read.relation.kind == "table" else _records(services, read)
        async for page, position in pages:  # noqa: B007 - the position of the last page
            result = await asyncio.to_thread(_page, reader, page)
            frames.append(result)
            height += result.height
            size += int(result.estimated_size())
            if size > services.settings.limits.answer_bytes:
                raise services.of(Readables).too_large(read.relation.definition_name, "/sql", FEWER)
            if read.limit is not None and height >= read.limit:
                break
    frame = pl.concat(frames) if frames else pl.DataFrame(schema=read.types.polars())
    return ResultRows(read.types, read.key, frame if read.limit is None else frame.head(read.limit), position)


def _page(reader: RowReader, page: pl.DataFrame) -> pl.DataFrame:
    return reader.shown(reader.selected(page))


async def _rows(services: Services, read: OwnedRead) -> AsyncIterator[tuple[pl.DataFrame, str | None]]:
    """Yield the rows of a table in the order of its key, page by page, with the table's position."""
    table, after, rows_read = read.relation.definition_name, None, 0
    await _reached(services, read)
    most = services.settings.sql.max_scanned_rows
    pages = _TablePages(read)
    while True:
        pages.after = after
        try:
            reading = await services.of(Readables).read(table, pages.ask)
        except psycopg.errors.QueryCanceled as error:
            raise read_too_expensive(table, services.settings.limits.read_timeout_ms) from error
        count, shown, last, is_over, *values = reading.values
        if is_over:
            raise services.of(Readables).too_large(table, "/sql", FEWER)
        horizon_ms = reading.head.horizon_ms(reading.table.output)
        if read.as_of_ms is not None and horizon_ms is not None and read.as_of_ms < horizon_ms:
            raise missing(table, "history_expired", horizon_ms)
        rows_read += shown
        yield pages.frame(reading, values), reading.head.position
        if last is None or count <= shown or not reading.table.output.key:
            return
        if rows_read >= most:
            raise too_many_rows(read.relation.name, most)
        after = json.loads(last)


async def _reached(services: Services, read: OwnedRead) -> None:
    """Wait until the table includes the position in WAIT FOR POSITION."""
    if read.position is None:
        return
    table = read.relation.definition_name
    freshness = parse_freshness(read.position, None if read.wait_ms is None else read.wait_ms / 1_000, None)
    await read_fresh(services, table, freshness, lambda: services.of(Readables).read(table, lambda _: Ask(HEAD_ONLY, {})))


class _TablePages:
    """The statements for the pages of one pull query.

    Attributes:
        after: texts of the last key before the page; None for the first page.
    """

    def __init__(self, read: OwnedRead) -> None:
        self._read = read
        self._shape = RowsShape(form="columns", has_time=True)
        self.after: list[str] | None = None

    def ask(self, table: ReadableTable) -> Ask:
        output = table.output
        comparisons = pushed(self._read.where, output.columns)
        read = self._read
        if (read.as_of_ms is not None or read.range_ms is not None) and output.history_retention_ms is None:
            raise not_versioned(output, "as_of")
        shape = RowsShape(
            source="history" if read.range_ms is not None else "now" if read.as_of_ms is None else "as_of",
            form="columns",
            state=_state(output, read),
            comparisons=tuple((one.column, one.operator) for one in comparisons),
            is_after=self.after is not None,
            has_time=True,
        )
        self._shape = shape
        params = parameters([one.value for one in comparisons], self.after)
        params |= {"limit": PAGE_ROWS, "separator": "", "at": read.as_of_ms, "window_from": None, "window_to": None}
        if read.range_ms is not None:
            params |= {"from": read.range_ms[0], "to": read.range_ms[1]}
        statement = table.statement(shape, lambda: rows_statement(output, shape))
        return Ask(statement, params, is_binary=True, is_scan=not _is_by_key(output, comparisons))

    def frame(self, reading: Reading, values: list[list[object] | None]) -> pl.DataFrame:
        output = reading.table.output
        columns = [*output.columns.items(), *marks_of(output, self._shape)]
        page = pl.from_arrow(arrow_batch(columns, values))
        if not isinstance(page, pl.DataFrame):
            raise TypeError("a batch of several columns is a frame")
        return page.cast({name: kind.polars for name, kind in columns})


def _state(output: Output, read: OwnedRead) -> State | None:
    """Return the windows to read: those that the table shows; also open ones if the SELECT asks for their state."""
    if not output.is_windowed or read.as_of_ms is not None or read.range_ms is not None:
        return None
    return "any" if not output.is_final or (read.reads_state and output.has_open) else "final"


def _is_by_key(output: Output, comparisons: tuple[Comparison, ...]) -> bool:
    """Return whether the query asks for whole keys, so that an index finds the rows."""
    key = output.key[:-2] if output.is_windowed else output.key
    return bool(key) and {one.column for one in comparisons if one.operator in ("eq", "in")}.issuperset(key)


async def _records(services: Services, read: OwnedRead) -> AsyncIterator[tuple[pl.DataFrame, str | None]]:
    most, rows_read = services.settings.sql.max_scanned_rows, 0
    async for frame in stream_records(services, read.relation.entry):
        rows_read += frame.height
        yield frame.filter(pl.col("_op") == 0).rename({"_ts": EVENT_TIME}), None  # a record without a value is not a row
        if rows_read > most:
            raise too_many_rows(read.relation.name, most)


def too_many_rows(relation: str, most: int) -> Unprocessable:
    detail = (
        f"the answer lies behind more than {most:,} rows of {relation} (SLACKWATER_SQL__MAX_SCANNED_ROWS); ask by key, set a LIMIT, or "
        "keep what you look for in a table of its own: CREATE TABLE … AS SELECT …"
    )
    return Unprocessable("too_many_rows", detail, [Fault("/sql", "too_many_rows", detail)])


async def stream_records(services: Services, entry: CatalogEntry) -> AsyncIterator[pl.DataFrame]:
    """Yield frames of ``_ts``, ``_op`` and the stream's columns; records of a partition or a part are in its order."""
    followed = await services.of(Followables).find("stream", entry.relation.name)
    async with following(services.of(Tails), ChangeSource(followed, has_text_numbers=False), "earliest") as follower:
        while frames := await follower.next():
            for frame in frames:
                yield frame


_SIGNS: Final[dict[str, Operator]] = {"=": "eq", ">": "gt", ">=": "ge", "<": "lt", "<=": "le"}
_MIRRORED: Final[dict[Operator, Operator]] = {"eq": "eq", "gt": "lt", "ge": "le", "lt": "gt", "le": "ge"}
_ORDERED: Final = frozenset({"int", "bigint", "decimal", "date", "time", "timestamp"})
_EXACT: Final = frozenset({*_ORDERED, "string", "boolean"})


def pushed(where: Node | None, columns: Schema) -> tuple[Comparison, ...]:
    """Return comparisons that every row of the answer fulfils, one for each column and operator.

    Args:
        where: its columns have their own names behind an alias.
        columns: of the rows.
    """
    comparisons: dict[tuple[str, Operator], Comparison] = {}
    for part in _conjuncts(where):
        comparison = _comparison(part, columns)
        if comparison is not None and len(comparisons) < MAX_FILTERS:
            comparisons.setdefault((comparison.column, comparison.operator), comparison)
    return tuple(comparisons.values())


def _conjuncts(node: Node | None) -> Iterator[Node]:
    bare = None if node is None else node.bare
    if isinstance(bare, Chain) and bare.sign == "AND":
        for part in bare.operands:
            yield from _conjuncts(part)
    elif bare is not None:
        yield bare


def _comparison(part: Node, columns: Schema) -> Comparison | None:
    match part:
        case Binary(sign=sign, left=left, right=right) if sign in _SIGNS:
            return _compared(left, _SIGNS[sign], right, columns) or _compared(right, _MIRRORED[_SIGNS[sign]], left, columns)
        case In(operand=operand, items=items) if len(items) <= MAX_LISTED:
            return _listed(operand, items, columns)
    return None


def _compared(side: Node, operator: Operator, other: Node, columns: Schema) -> Comparison | None:
    named, text = _named(side, columns), _written(other)
    if named is None or text is None:
        return None
    column, kind, is_bound = named
    if kind.kind not in (_EXACT if operator == "eq" else _ORDERED):
        return None
    value = _value(text, kind, is_bound=is_bound)
    return None if value is None else Comparison(column, operator, value)


def _listed(operand: Node, items: Iterable[Node], columns: Schema) -> Comparison | None:
    named = _named(operand, columns)
    if named is None or named[1].kind not in _EXACT:
        return None
    column, kind, is_bound = named
    values = [None if (text := _written(item)) is None else _value(text, kind, is_bound=is_bound) for item in items]
    return Comparison(column, "in", values) if values and all(value is not None for value in values) else None


def _named(node: Node, columns: Schema) -> tuple[str, ColumnType, bool] | None:
    """Return a column with its type, and whether the node is a window bound in milliseconds."""
    match node.bare:
        case Column(name=name) if name.text in columns and columns[name.text] != TIMESTAMP:
            return name.text, columns[name.text], False
        case Call(arguments=(Column(name=name),)) as call if call.name.text == "epoch_ms" and name.text in columns:
            return name.text, columns[name.text], True
    return None


def _written(node: Node) -> str | None:
    match node.bare:
        case Text(value=text) | Number(text=text):
            return text
        case Negative(operand=Number(text=text)):
            return f"-{text}"
        case Boolean(value=value):
            return "true" if value else "false"
    return None


def _value(text: str, kind: ColumnType, *, is_bound: bool) -> Any:
    try:
        if not is_bound:
            return parse_value(text, kind)
        return instant(int(text)) if 0 <= int(text) <= MAX_INSTANT_MS else None
    except ValueError:
        return None

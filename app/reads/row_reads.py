"""One pull read: check it against the table, build its statement, and build its answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import psycopg
from fastapi import Response

from app.access.rules import visible_position_text
from app.errors.app_errors import BadRequest, Conflict, Fault, Gone, NotFound, TooExpensive
from app.http.answers.database_errors import read_too_expensive
from app.http.answers.negotiation import SEPARATORS, Form, arrow_response, joined_response
from app.http.parameters import Services
from app.http.requests.paging import bad_cursor, decode_cursor, encode_cursor
from app.http.values import MAX_INSTANT_MS, instant, parse_value, shown
from app.reads.freshness import Freshness, read_fresh
from app.reads.readable import TOO_LARGE, Ask, Head, Readables, ReadableTable, Reading
from app.reads.row_filters import COLUMN_PREFIX, KEY_PREFIX, Comparison, parse_filters
from app.reads.rows import RowsShape, State, lookup_statement, marks_of, order_of, parameters, rows_statement
from engine.plan.model import Output

FOUND = "found"


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A requested read, not yet checked against the table.

    Attributes:
        filters: query parameters that are conditions.
        single_key: the path's key; None for a read of many rows.
        at_ms: as of this time; None for now.
        range_ms: of a history; None for rows.
    """

    table: str
    limit: int
    form: Form
    single_key: str | None = None
    filters: Sequence[tuple[str, str]] = ()
    at_ms: int | None = None
    range_ms: tuple[int, int] | None = None
    state: State | None = None
    bounds_ms: tuple[int | None, int | None] = (None, None)
    is_descending: bool = False
    has_text_numbers: bool = False
    cursor: str | None = None

    @property
    def is_row_of_now(self) -> bool:
        """Whether it reads one key's current row, without any condition."""
        is_now = self.at_ms is None and self.range_ms is None and self.state is None
        is_whole = not self.filters and self.bounds_ms == (None, None) and self.cursor is None
        return self.single_key is not None and is_now and is_whole and self.form != "arrow"

    @property
    def selection(self) -> str:
        """Return a digest of the selection and order of rows. A cursor belongs to reads with the same digest."""
        chosen = self.single_key, sorted(self.filters), self.at_ms, self.range_ms, self.state, self.bounds_ms, self.is_descending
        return hashlib.sha256(json.dumps(chosen).encode()).hexdigest()[:12]


async def answer_rows(services: Services, request: ReadRequest, freshness: Freshness) -> Response:
    """Read rows and return the answer.

    Raises:
        AppError: the request is invalid or cannot be answered.
    """
    read = _RowsRead(request)

    async def run() -> Reading:
        try:
            return await services.of(Readables).read(request.table, read.ask)
        except psycopg.DataError as error:  # values of filters are parsed before; texts of a cursor are checked here only
            raise bad_cursor() from error
        except psycopg.errors.QueryCanceled as error:
            raise read.too_expensive(services.settings.limits.read_timeout_ms) from error

    reading = read.counted(await read_fresh(services, request.table, freshness, run))
    if reading.values[3]:
        raise services.of(Readables).too_large(
            request.table, "?limit", "ask for fewer rows with a smaller `limit`, or keep less in a row"
        )
    output = reading.table.output
    horizon_ms = reading.head.horizon_ms(output)
    is_expired = request.at_ms is not None and horizon_ms is not None and request.at_ms < horizon_ms
    is_missing = request.single_key is not None and request.range_ms is None and not reading.values[0]
    key = read.whole_key(output) if output.history_retention_ms is not None and (is_expired or is_missing) else None
    if key is not None:
        # A key's latest version may answer for times before the retained history (V4); and the reason for a missing row is known per key.
        outcome = await _outcome(services, request, key)
        if outcome == "history_expired" or (request.single_key is not None and outcome != FOUND):
            raise missing(request.table, outcome, horizon_ms)
        if outcome != FOUND:
            return read.response(reading, is_empty=True)
    elif is_expired:
        raise missing(request.table, "history_expired", horizon_ms)
    elif is_missing:
        raise missing(request.table, "row_not_found", horizon_ms)
    return read.response(reading)


async def _outcome(services: Services, request: ReadRequest, key: tuple[object, ...]) -> str:
    at_ms = MAX_INSTANT_MS if request.at_ms is None else request.at_ms
    ask = lookup_ask([key], at_ms, has_text_numbers=False)
    reading = await services.of(Readables).read(request.table, ask)
    outcome: str = reading.values[0][0]
    return FOUND if outcome == TOO_LARGE else outcome


def lookup_ask(
    keys: Sequence[tuple[object, ...]], at_ms: int | None, *, has_text_numbers: bool
) -> Callable[[ReadableTable], Ask]:
    """Return a function that makes the read of whole keys. The keys were parsed with the schema of the same table."""

    def ask(table: ReadableTable) -> Ask:
        shape = "lookup", has_text_numbers
        statement = table.statement(shape, lambda: lookup_statement(table.output, has_text_numbers=has_text_numbers))
        columns = {f"k{place}": [key[place] for key in keys] for place in range(len(table.output.key))}
        return Ask(statement, {**columns, "at": MAX_INSTANT_MS if at_ms is None else at_ms})

    return ask


def missing(table: str, outcome: str, horizon_ms: int | None) -> NotFound | Gone:
    if outcome == "history_expired":
        return Gone(
            "history_expired",
            f"'{table}' keeps its history from {shown(horizon_ms)} on, and a version that began later says nothing about the time before; "
            "ask for a later time, or keep more with `history_retention`",
        )
    if outcome == "row_deleted":
        return NotFound("row_deleted", f"'{table}' had a row for this key; it was deleted")
    return NotFound("row_not_found", f"'{table}' has no row for this key; rows appear with the query's commits")


class _RowsRead:
    """One request during ``Readables.read``: ``ask`` may be called again if the table changes."""

    def __init__(self, request: ReadRequest) -> None:
        self._request = request
        self._comparisons: tuple[Comparison, ...] = ()
        self._shape = RowsShape()
        self._is_looked_up = False
        self._output: Output | None = None

    def ask(self, table: ReadableTable) -> Ask:
        """Check the request against the table and return its statement."""
        output, request = table.output, self._request
        self._output = output
        key = self._key_alone(output)
        self._is_looked_up = key is not None
        if key is not None:
            ask = lookup_ask([], None, has_text_numbers=request.has_text_numbers)(table)
            return replace(ask, one_key=key)
        self._comparisons = _comparisons(output, request)
        source = "history" if request.range_ms is not None else "now" if request.at_ms is None else "as_of"
        if source != "now" and output.history_retention_ms is None:
            raise not_versioned(output, "from" if source == "history" else "as_of")
        shape = RowsShape(
            source=source,  # type: ignore[arg-type]  # one of the three
            form="columns" if request.form == "arrow" else "json",
            comparisons=tuple([(one.column, one.operator) for one in self._comparisons]),
            state=_state(output, request),
            bounds=(request.bounds_ms[0] is not None, request.bounds_ms[1] is not None),
            is_after=request.cursor is not None,
            is_descending=request.is_descending,
            has_text_numbers=request.has_text_numbers,
        )
        self._shape = shape
        params = parameters([one.value for one in self._comparisons], _after(request, len(order_of(output, shape))))
        params |= {"limit": request.limit, "separator": SEPARATORS[request.form], "at": request.at_ms}
        if request.range_ms is not None:
            params |= {"from": request.range_ms[0], "to": request.range_ms[1]}
        for name, bound in zip(("window_from", "window_to"), request.bounds_ms, strict=True):
            params[name] = None if bound is None else instant(bound)
        statement = table.statement(shape, lambda: rows_statement(output, shape))
        return Ask(statement, params, is_binary=shape.form == "columns", is_scan=not self._is_by_key(output))

    def _is_by_key(self, output: Output) -> bool:
        """Return whether the conditions are one whole key, beside the window's bounds, so that an index finds the rows."""
        key = output.key[:-2] if output.is_windowed else output.key
        compared = {one.column for one in self._comparisons if one.operator == "eq"}
        return bool(key) and compared.issuperset(key) and all(one.column in output.key for one in self._comparisons)

    def _key_alone(self, output: Output) -> object | None:
        """Return the key if a lookup, which costs less, gives the same answer; None otherwise, and for a text not of the key's type."""
        text = self._request.single_key
        is_alone = len(output.key) == 1 and not output.is_windowed and output.history_retention_ms is None
        if text is None or not is_alone or not self._request.is_row_of_now:
            return None
        try:
            return parse_value(text, output.columns[output.key[0]])
        except ValueError:
            return None

    def too_expensive(self, timeout_ms: int) -> TooExpensive:
        """Return the error for a read that the database did not finish, with each condition that no index supports."""
        output, request = self._output, self._request
        if output is None:
            return read_too_expensive(request.table, timeout_ms)
        led = {name for count, name in enumerate(output.key) if self._is_led(output.key[:count])}
        unhelped = [one for one in self._comparisons if one.column not in led]
        prefixes = {True: KEY_PREFIX, False: COLUMN_PREFIX}
        names = [f"{prefixes[one.column in output.key]}{one.column}.{one.operator}" for one in unhelped]
        key = ", ".join(output.key) or "(none)"
        reason = f"{', '.join(names)} must look at every row, because only the key ({key}) has an index. " if names else ""
        detail = (
            f"{reason}Ask for the key's first columns (`key.<column>=…`), bound windows with `window_from` and `window_to`, take fewer rows "
            "with `limit`; or POST a query that puts these rows into a table whose key you can ask for"
        )
        error = read_too_expensive(f"/v1/tables/{request.table}/rows", timeout_ms, detail)
        error.faults = tuple(Fault(f"?{name}", error.code, "no index leads to these rows") for name in names)
        return error

    def _is_led(self, columns: Sequence[str]) -> bool:
        """Return whether each of these columns is compared with one value, so that the index is ordered by the next column."""
        return set(columns) <= {one.column for one in self._comparisons if one.operator == "eq"}

    def counted(self, reading: Reading) -> Reading:
        """Return the reading with the columns of ``rows_statement``, even if it was a lookup."""
        if not self._is_looked_up:
            return reading
        outcome, row = reading.values
        count = int(outcome in (FOUND, TOO_LARGE))
        return replace(reading, values=(count, count, None, outcome == TOO_LARGE, row))

    def whole_key(self, output: Output) -> tuple[object, ...] | None:
        """Return the key if the conditions name exactly one whole key; otherwise None."""
        values = {one.column: one.value for one in self._comparisons if one.operator == "eq"}
        is_key_alone = len(values) == len(self._comparisons) == len(output.key) and set(values) == set(output.key)
        is_page = self._request.cursor is not None or self._request.bounds_ms != (None, None)
        return tuple(values[name] for name in output.key) if is_key_alone and not is_page else None

    def response(self, reading: Reading, *, is_empty: bool = False) -> Response:
        """Return the answer; ``is_empty`` leaves out rows that count as forgotten."""
        request, output = self._request, reading.table.output
        values: tuple[Any, ...] = (0, *(None for _ in reading.values[1:])) if is_empty else reading.values
        count, shown_count, last, _, *columns = values
        is_more = last is not None and count > shown_count and output.key
        following = encode_cursor([request.selection, *json.loads(last)]) if is_more else None
        rest = members(request.table, reading.head, output, request.at_ms)
        horizon_ms = reading.head.horizon_ms(output)
        is_truncated = request.range_ms is not None and horizon_ms is not None and request.range_ms[0] < horizon_ms
        rest["truncated"] = "true" if is_truncated else "false"
        rest["next"] = "null" if following is None else f'"{following}"'
        if request.form == "arrow":
            return arrow_response([*output.columns.items(), *marks_of(output, self._shape)], columns, rest)
        return joined_response(request.form, "rows", columns[0] or "", rest)


def members(table: str, head: Head, output: Output, at_ms: int | None) -> dict[str, str]:
    """Return the members of every answer beside its rows, as JSON texts."""
    horizon_ms = head.horizon_ms(output)
    committed_at = head.committed_at
    return {
        "table": f'"{table}"',
        "position": visible_position_text(head.position),
        "stream_time_ms": "null" if head.stream_time_ms is None else str(head.stream_time_ms),
        "committed_at": "null" if committed_at is None else f'"{committed_at.isoformat().replace("+00:00", "Z")}"',
        "stale": "true" if head.is_stale else "false",
        "as_of_ms": "null" if at_ms is None else str(at_ms),
        "history_starts_at_ms": "null" if horizon_ms is None else str(horizon_ms),
    }


def not_versioned(output: Output, parameter: str) -> Conflict:
    detail = (
        f"'{output.name}' keeps no history, so only its current rows can be read; `versioned` of its source, or `into.versioned` of its "
        'query, {"history_retention": …}, keeps one'
    )
    return Conflict("table_not_versioned", detail, [Fault(f"?{parameter}", "table_not_versioned", detail)])


def _after(request: ReadRequest, length: int) -> list[str] | None:
    """Return the texts of the last row before the page, ``length`` of them; None for the first page."""
    cursor = decode_cursor(request.cursor, [str] * (1 + length))
    if cursor is None:
        return None
    if cursor[0] != request.selection:
        raise bad_cursor()
    return [str(part) for part in cursor[1:]]


def _comparisons(output: Output, request: ReadRequest) -> tuple[Comparison, ...]:
    filters = [*request.filters, *_single_key(output, request)]
    if not filters:
        return ()
    return parse_filters(filters, output.columns, output.key)


def _single_key(output: Output, request: ReadRequest) -> list[tuple[str, str]]:
    if request.single_key is None:
        return []
    columns = output.key[:-2] if output.is_windowed else output.key
    if len(columns) != 1:
        conditions = "&".join(f"{KEY_PREFIX}{name}=…" for name in columns)
        raise BadRequest(
            "composite_key",
            f"the key of '{output.name}' has {len(columns)} columns; ask for /v1/tables/{output.name}/rows?{conditions}",
        )
    return [(f"{KEY_PREFIX}{columns[0]}", request.single_key)]


def _state(output: Output, request: ReadRequest) -> State | None:
    """Check the request for windows; return the state of windows to read."""
    if not output.is_windowed:
        if request.bounds_ms != (None, None):
            raise BadRequest("not_windowed", f"'{output.name}' has no windows; leave `window_from` and `window_to` out")
        if request.state is not None:
            raise BadRequest("not_windowed", f"'{output.name}' has no windows, so none is open or final; leave `state` out")
        return None
    if request.at_ms is not None or request.range_ms is not None:
        if request.state is not None:
            detail = "windows are open or final now, not in the past; leave `state` out"
            raise BadRequest("conflicting_parameters", detail, [Fault("?state", "conflicting_parameters", detail)])
        return None
    if request.state in ("open", "any") and output.is_final and not output.has_open:
        raise Conflict(
            "open_not_materialised",
            f"'{output.name}' shows windows once they are final (suppress: until_window_closes); \"materialize_open\": true in the query's "
            "`into` keeps the open ones readable too",
            [Fault("?state", "open_not_materialised", "only `final` can be read here")],
        )
    return request.state or ("final" if output.is_final else "any")

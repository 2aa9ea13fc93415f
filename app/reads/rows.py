"""Statements of pull reads: current rows, rows as of an event time, versions in a range; filtered, in key order, page by page.

Postgres returns rows as one JSON text, or as one array per column. Every identifier is quoted, every value
is bound; names and values from users never become SQL text. Our own names begin with ``_``, and columns of users are always qualified: a bare
name, even an alias of a row, could equal one of theirs. A statement's text depends on its shape alone, so it is built once and stays
prepared.
"""

# ruff: noqa: S608 - identifiers are quoted by ``quoted``, values bound; nothing else comes from outside

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from app.db.page_bounds import quoted, row_bytes
from app.reads.readable import TOO_LARGE, with_head
from app.reads.row_filters import Operator
from engine.commit.views import HISTORY_SCHEMA, IS_DELETED, OPEN_SCHEMA, RESULT_TIME, SCHEMA
from engine.expressions.types.types import ColumnType
from engine.plan.model import Output
from engine.postgres.column_names import stored_name

STATE, VALID_FROM, VALID_TO, EVENT_TIME = "$state", "$valid_from_ms", "$valid_to_ms", "$event_time_ms"
"""Members of rows in answers beside their columns. No column's name begins with $."""

State = Literal["final", "open", "any"]
_NEXT = "_next_ts"
_OPERATORS: dict[Operator, str] = {
    "eq": "{} = %({})s::{}",
    "ne": "{} IS DISTINCT FROM %({})s::{}",
    "gt": "{} > %({})s::{}",
    "ge": "{} >= %({})s::{}",
    "lt": "{} < %({})s::{}",
    "le": "{} <= %({})s::{}",
    "in": "{} = ANY(%({})s::{}[])",
    "null": "({} IS NULL) = %({})s::boolean",
}


@dataclass(frozen=True, slots=True)
class RowsShape:
    """The parts of a read that determine the text of its statement; values are its parameters.

    Attributes:
        source: current rows; rows of ``%(at)s``; versions valid in ``%(from)s`` … ``%(to)s``.
        form: ``json``: one text, rows separated by ``%(separator)s``; ``columns``: one array per column.
        comparisons: column and operator; the n-th one's value is ``%(p<n>)s``.
        state: state of the windows of current rows; None for a table without windows.
        bounds: whether ``%(window_from)s`` and ``%(window_to)s`` are set.
        is_after: whether the page begins after ``%(after<n>)s``, texts of the order's columns.
        has_text_numbers: bigint and decimal as JSON strings.
        has_time: rows include their event time.
    """

    source: Literal["now", "as_of", "history"] = "now"
    form: Literal["json", "columns"] = "json"
    comparisons: tuple[tuple[str, Operator], ...] = ()
    state: State | None = None
    bounds: tuple[bool, bool] = (False, False)
    is_after: bool = False
    is_descending: bool = False
    has_text_numbers: bool = False
    has_time: bool = False


def order_of(output: Output, shape: RowsShape) -> tuple[str, ...]:
    """Return the columns of a cursor: the key; for a history, the version's time too."""
    return (*output.key, RESULT_TIME) if shape.source == "history" else output.key


def marks_of(output: Output, shape: RowsShape) -> tuple[tuple[str, ColumnType], ...]:
    """Return the additional members of rows of this shape."""
    time = ((EVENT_TIME, ColumnType("bigint")),) if shape.has_time else ()
    if shape.source == "history":
        return ((VALID_FROM, ColumnType("bigint")), (VALID_TO, ColumnType("bigint")), *time)
    return (*(((STATE, ColumnType("string")),) if output.is_windowed and shape.source == "now" else ()), *time)


def rows_statement(output: Output, shape: RowsShape) -> str:
    """Return the statement of a page: ``%(limit)s`` rows, or fewer if the rows before one have ``%(page_bytes)s``.

    Rows are measured before they are written as text, without reading values that Postgres stores apart (TOAST): rows beyond the
    page are only counted.

    Its columns: number of rows found, larger than the page if another page follows; number of rows in the page; the key of its last row as
    a JSON array of texts, if the page ends early or at the limit; whether the rows are over ``%(answer_bytes)s``; the rows: one text, or
    one array for each column and mark, null if they are over the limit.
    """
    order = order_of(output, shape)
    shown = [(name, kind, _own(name)) for name, kind in output.columns.items()]
    shown += [(name, kind, _own(name)) for name, kind in marks_of(output, shape)]
    direction = " DESC" if shape.is_descending else ""
    ordered = ", ".join(f"{_own(name)}{direction}" for name in order)
    window = f"({f'ORDER BY {ordered} ' if order else ''}ROWS UNBOUNDED PRECEDING)"
    keys = "".join(f", {_own(name)}::text AS _k{place}" for place, name in enumerate(order))
    limited = f"{' ORDER BY ' + ordered if order else ''} LIMIT %(limit)s::integer + 1"
    source = f"SELECT v.*, {row_bytes(output.columns)} AS _bytes FROM ({_source(output, shape)}) v WHERE {_outer(output, shape)}{limited}"
    cursor = ", ".join(f"x._k{place}" for place in range(len(order)))
    measured = f"SELECT v.*, row_number() OVER w AS _n, sum(v._bytes) OVER w AS _through FROM ({source}) v WINDOW w AS {window}"
    is_shown = "v._n <= %(limit)s AND (v._n = 1 OR v._through - v._bytes < %(page_bytes)s)"
    places = f"v._n, v._through, {is_shown} AS _is_shown{keys}"
    last = (
        f"min(json_build_array({cursor})::text) FILTER (WHERE x._is_shown AND (x._n = %(limit)s OR x._through >= %(page_bytes)s))"
    )
    if shape.form == "json":
        members = ", ".join(f"{_shown(text, kind, shape)} AS {quoted(name)}" for name, kind, text in shown)
        row = f"CASE WHEN {is_shown} THEN row_to_json(_s)::text END"
        inner = f"SELECT {places}, {row} AS _row FROM ({measured}) v CROSS JOIN LATERAL (SELECT {members}) _s"
        size = "sum(octet_length(x._row))"
        rows = ["string_agg(x._row, %(separator)s ORDER BY x._n) FILTER (WHERE x._is_shown)"]
    else:
        members = ", ".join(
            f"CASE WHEN {is_shown} THEN {_carried(text, kind)} END AS _c{place}" for place, (_, kind, text) in enumerate(shown)
        )
        inner = f"SELECT {places}, {members} FROM ({measured}) v"
        size = "max(x._through) FILTER (WHERE x._is_shown)"
        rows = [f"array_agg(x._c{place} ORDER BY x._n) FILTER (WHERE x._is_shown)" for place in range(len(shown))]
    is_over = f"coalesce({size} > %(answer_bytes)s, false)"
    results = ", ".join(f"CASE WHEN NOT {is_over} THEN {text} END" for text in rows)
    return with_head(f"SELECT count(*), count(*) FILTER (WHERE x._is_shown), {last}, {is_over}, {results} FROM ({inner}) x")


def lookup_statement(output: Output, *, has_text_numbers: bool) -> str:
    """Return the statement that looks many whole keys up: ``%(k<n>)s`` has the n-th key column's values.

    Its columns: one array of outcomes (``found``, ``row_not_found``, and for a versioned table ``row_deleted`` and ``history_expired``,
    V4; ``TOO_LARGE`` if this row and earlier ones are over ``%(answer_bytes)s``), one of rows as JSON texts. A versioned table
    is read as of ``%(at)s``.
    """
    arrays = ", ".join(f"%(k{place})s::{_bound(output.columns[name])}[]" for place, name in enumerate(output.key))
    names = ", ".join(f"_k{place}" for place in range(len(output.key)))
    same = " AND ".join(f"{_own(name)} = w._k{place}" for place, name in enumerate(output.key))
    shape = RowsShape(has_text_numbers=has_text_numbers)
    shown = [(name, kind, _own(name)) for name, kind in output.columns.items()]
    if output.history_retention_ms is None:
        view = f"SELECT v.*, {_state(output)} AS {quoted(STATE)} FROM {_table(SCHEMA, output)} v WHERE {same}"
        shown += [(name, kind, _own(name)) for name, kind in marks_of(output, shape)]
        joined, outcome = f"LEFT JOIN LATERAL ({view}) v ON true", "CASE WHEN v._ts IS NULL THEN 'row_not_found' ELSE 'found' END"
    else:
        newest = f"SELECT v.* FROM {_table(HISTORY_SCHEMA, output)} v WHERE {same}"
        joined = (
            f"LEFT JOIN LATERAL ({newest} ORDER BY v._ts DESC LIMIT 1) l ON true "
            f"LEFT JOIN LATERAL ({newest} AND v._ts <= %(at)s ORDER BY v._ts DESC LIMIT 1) v ON true"
        )
        outcome = _outcome(output)
    members = ", ".join(f"{_shown(text, kind, shape)} AS {quoted(name)}" for name, kind, text in shown)
    through = f"sum({row_bytes(output.columns)}) OVER (ROWS UNBOUNDED PRECEDING)"
    keys = f"unnest({arrays}) WITH ORDINALITY AS w({names}, _n)"
    measured = f"SELECT v.*, w._n, {outcome} AS _found, {through} AS _through FROM {keys} {joined}"
    is_over = "v._found = 'found' AND v._through > %(answer_bytes)s"
    row = f"SELECT CASE WHEN NOT ({is_over}) THEN row_to_json(_s)::text END AS _row FROM (SELECT {members}) _s"
    inner = (
        f"SELECT v._n, CASE WHEN {is_over} THEN '{TOO_LARGE}' ELSE v._found END AS _outcome, r._row "
        f"FROM ({measured}) v CROSS JOIN LATERAL ({row}) r"
    )
    rows = "array_agg(CASE WHEN x._outcome = 'found' THEN x._row END ORDER BY x._n)"
    return with_head(f"SELECT array_agg(x._outcome ORDER BY x._n), {rows} FROM ({inner}) x")


def _outcome(output: Output) -> str:
    """Return the outcome by V4; ``l`` is the key's latest version, ``v`` the selected one. A latest tombstone before the horizon is ignored."""
    horizon = _horizon(output)
    return f"""CASE
        WHEN l._ts IS NULL OR (l.{IS_DELETED} AND l._ts < {horizon}) THEN 'row_not_found'
        WHEN %(at)s < {horizon} AND l._ts > %(at)s THEN 'history_expired'
        WHEN v._ts IS NULL OR (v.{IS_DELETED} AND v._ts < {horizon}) THEN 'row_not_found'
        WHEN v.{IS_DELETED} THEN 'row_deleted'
        ELSE 'found'
    END"""


def _horizon(output: Output) -> str:
    return f"(h.stream_time_ms - {int(output.history_retention_ms or 0)})"


def _source(output: Output, shape: RowsShape) -> str:
    """Return the rows before the conditions on single versions."""
    inner = " AND ".join(["true", *_key_conditions(output, shape)])
    if shape.source == "now":
        return " UNION ALL ".join(_current(output, shape, inner))
    history, key = _table(HISTORY_SCHEMA, output), [_own(name) for name in output.key]
    if shape.source == "as_of":
        direction = " DESC" if shape.is_descending else ""
        ordered = ", ".join([*(f"{name}{direction}" for name in key), "v._ts DESC"])
        return f"SELECT DISTINCT ON ({', '.join(key)}) v.* FROM {history} v WHERE {inner} AND v._ts <= %(at)s ORDER BY {ordered}"
    following = f"lead(v._ts) OVER (PARTITION BY {', '.join(key)} ORDER BY v._ts)"
    versions = f"SELECT v.*, {following} AS {_NEXT} FROM {history} v WHERE {inner}"
    return f"SELECT v.*, v._ts AS {quoted(VALID_FROM)}, v.{_NEXT} AS {quoted(VALID_TO)} FROM ({versions}) v"


def _current(output: Output, shape: RowsShape, conditions: str) -> Iterator[str]:
    state = f"{_state(output)} AS {quoted(STATE)}"
    columns = ", ".join(_own(name) for name in (*output.columns.names, RESULT_TIME))
    if not output.is_final:
        yield f"SELECT {columns}, {state} FROM {_table(SCHEMA, output)} v WHERE {conditions}"
        return
    if shape.state != "open":
        yield f"SELECT {columns}, {state} FROM {_table(SCHEMA, output)} v WHERE {conditions}"
    if shape.state in ("open", "any"):
        yield f"SELECT {columns}, 'open' AS {quoted(STATE)} FROM {_table(OPEN_SCHEMA, output)} v WHERE {conditions}"


def _state(output: Output) -> str:
    """Return whether a row of the view can still change: W5."""
    if not output.is_windowed:
        return "NULL::text"
    if output.is_final:
        return "'final'"
    if output.closes_after_ms is None:
        return "'open'"
    bound = f"to_timestamp((h.stream_time_ms - {int(output.closes_after_ms)}) / 1000.0)"
    return f"CASE WHEN {_own(output.key[-1])} <= {bound} THEN 'final' ELSE 'open' END"


def _key_conditions(output: Output, shape: RowsShape) -> Iterator[str]:
    """Return conditions to apply before versions are selected: they are the same for all versions of a key."""
    yield from (text for column, text in _comparisons(output, shape) if column in output.key)
    for is_given, sign, name in zip(shape.bounds, (">=", "<"), ("window_from", "window_to"), strict=True):
        if is_given:
            yield f"{_own(output.key[-2])} {sign} %({name})s::timestamptz"
    if shape.is_after and output.key:
        # In a history, other versions of the last key may follow; ``_outer`` compares their times too.
        sign = {"history": "<=" if shape.is_descending else ">="}.get(shape.source, "<" if shape.is_descending else ">")
        yield _after(output, output.key, sign)


def _outer(output: Output, shape: RowsShape) -> str:
    """Return the conditions on the row or version itself."""
    conditions = ["true"]
    conditions += [text for column, text in _comparisons(output, shape) if column not in output.key]
    if shape.source == "now":
        if shape.state in ("final", "open") and not output.is_final:
            conditions.append(f"v.{quoted(STATE)} = '{shape.state}'")
        return " AND ".join(conditions)
    conditions.append(f"NOT v.{IS_DELETED}")
    if shape.source == "history":
        horizon = _horizon(output)
        conditions += [
            "v._ts <= %(to)s",
            f"(v.{_NEXT} IS NULL OR v.{_NEXT} > greatest(%(from)s, {horizon}))",
            f"(v.{_NEXT} IS NULL OR coalesce(%(to)s >= {horizon}, true))",
        ]
        if shape.is_after:
            conditions.append(_after(output, order_of(output, shape), "<" if shape.is_descending else ">"))
    return " AND ".join(conditions)


def _comparisons(output: Output, shape: RowsShape) -> Iterator[tuple[str, str]]:
    for place, (column, operator) in enumerate(shape.comparisons):
        yield column, _OPERATORS[operator].format(_own(column), f"p{place}", _bound(output.columns[column]))


def _after(output: Output, order: Sequence[str], sign: str) -> str:
    columns = ", ".join(_own(name) for name in order)
    types = ["bigint" if name == RESULT_TIME else output.columns[name].postgres for name in order]
    texts = ", ".join(f"%(after{place})s::text::{kind}" for place, kind in enumerate(types))
    return f"({columns}) {sign} ({texts})"


def _bound(declared: ColumnType) -> str:
    """Return the type of a bound value; a decimal has no scale, because that would round the value before the comparison."""
    return "numeric" if declared.kind == "decimal" else declared.postgres


def _shown(text: str, declared: ColumnType, shape: RowsShape) -> str:
    """Return a column in the form of JSON answers; Postgres's own JSON form is right for the other types."""
    match declared.kind:
        case "timestamp":
            moment = f"to_char({text} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US')"
            return f"rtrim(rtrim({moment}, '0'), '.') || 'Z'"
        case "bytes":
            return f"translate(encode({text}, 'base64'), E'\\n', '')"
        case "bigint" | "decimal" if shape.has_text_numbers:
            return f"{text}::text"
        case "double":  # a whole number as 3.0, as in records; from 1e15 on Postgres writes an exponent anyway
            is_whole = f"{text} = trunc({text}) AND abs({text}) < 1e15"
            return f"CASE WHEN {is_whole} THEN ({text}::text || '.0')::json ELSE to_json({text}) END"
        case _:
            return text


def _carried(text: str, declared: ColumnType) -> str:
    """Return a column in a form for arrays: nested values as JSON texts, a time as microseconds."""
    if declared.is_nested:
        return f"{text}::text"
    if declared.kind == "timestamp":
        return f"(extract(epoch FROM {text}) * 1000000)::bigint"
    return text


def _table(schema: str, output: Output) -> str:
    return f"{schema}.{quoted(output.name)}"


def _own(name: str) -> str:
    """Return a column of ``v``, the alias of the rows' table in all statements here."""
    return f"v.{RESULT_TIME}" if name == EVENT_TIME else f"v.{quoted(stored_name(name))}"


def parameters(comparisons: Sequence[Any], after: Sequence[str] | None, **others: Any) -> dict[str, Any]:
    """Return the parameters of ``rows_statement``: values of comparisons, texts of the cursor, and others by name."""
    params = {f"p{place}": value for place, value in enumerate(comparisons)}
    params |= {f"after{place}": text for place, text in enumerate(after or ())}
    return params | others

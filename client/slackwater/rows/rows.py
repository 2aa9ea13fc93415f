"""Results of reads: rows of a table, versions, results of lookups and of SQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, overload

from slackwater.answers.answer_list import StatementResult
from slackwater.errors import HistoryExpired, Json, NotFound, RowDeleted, RowNotFound
from slackwater.frames import arrow_of_rows, pandas_of, polars_of
from slackwater.parameters import Duration, Instant, Where, conditions, duration, instant, json_text
from slackwater.transport.requests import JSON_TYPE


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Options of every read of a table: freshness, time, and selection.

    Attributes:
        as_of: rows as of this event time; for a versioned table.
        where: conditions; see ``slackwater.Where``.
        state: of windows: ``final``, ``open`` or ``any``; None: the table's default.
        window_from: lower bound of a window's start, inclusive.
        window_to: upper bound of a window's start, exclusive.
        order: by key.
        min_position: wait until the answer includes this position.
        timeout: maximum seconds to wait for it.
        max_staleness: refuse an answer whose last commit is older.
        bigints: ``string``: bigints and decimals as texts, so that decimals keep all digits.
    """

    as_of: Instant | None = None
    where: Where | None = None
    state: Literal["final", "open", "any"] | None = None
    window_from: Instant | None = None
    window_to: Instant | None = None
    order: Literal["asc", "desc"] | None = None
    min_position: Mapping[str, Mapping[str, int]] | None = None
    timeout: float | None = None
    max_staleness: Duration | None = None
    bigints: Literal["number", "string"] | None = None

    def params(self) -> list[tuple[str, str]]:
        """Return the options as query parameters."""
        named = {
            **self.fresh_params(),
            "state": self.state,
            "window_from": instant(self.window_from),
            "window_to": instant(self.window_to),
            "order": self.order,
        }
        return [(name, str(value)) for name, value in named.items() if value is not None] + list(conditions(self.where))

    def fresh_params(self) -> dict[str, str | float | None]:
        """Return the options for lookups."""
        return {
            "as_of": instant(self.as_of),
            "min_position": None if self.min_position is None else json_text(self.min_position),
            "timeout": self.timeout,
            "max_staleness": duration(self.max_staleness),
            "bigints": self.bigints,
        }

    @property
    def read_timeout_s(self) -> float | None:
        """Time limit of an answer, if it waits."""
        return None if self.min_position is None else (self.timeout or 30.0) + 30.0


class Rows(Sequence[Json]):
    """Rows of a read, and the position of the table at that time.

    Attributes:
        rows: each as columns by name; of windowed tables with ``$state``, versions with ``$valid_from_ms`` and ``$valid_to_ms``.
        position: feed, partition, next offset of the records that they include.
        stream_time_ms: stream time of the table's query; None before the first record.
        committed_at: RFC 3339; None before the first commit.
        stale: True while the query does not run.
        truncated: the requested versions begin before the retained history.
        has_more: there are rows beyond ``limit``.
    """

    def __init__(self, rows: Sequence[Json], head: Mapping[str, Any], *, has_more: bool) -> None:
        self.rows = list(rows)
        self.table: str = head["table"]
        self.position: dict[str, dict[str, int]] = head["position"]
        self.stream_time_ms: int | None = head["stream_time_ms"]
        self.committed_at: str | None = head["committed_at"]
        self.stale: bool = head["stale"]
        self.truncated: bool = head.get("truncated", False)
        self.has_more = has_more

    @overload
    def __getitem__(self, place: int) -> Json: ...
    @overload
    def __getitem__(self, place: slice) -> list[Json]: ...
    def __getitem__(self, place: int | slice) -> Json | list[Json]:
        return self.rows[place]

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"<{len(self)} rows of {self.table}{', and more' if self.has_more else ''}>"

    def _repr_html_(self) -> str:
        from slackwater.displays.tables import row_table

        return row_table(self)


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a lookup for one key.

    Attributes:
        row: None if there is none; ``reason`` is then ``row_not_found``, ``row_deleted`` or ``history_expired``.
    """

    row: Json | None
    reason: str | None

    @property
    def found(self) -> bool:
        """Whether there is a row."""
        return self.row is not None


def single(table: str, key: Any, found: Found) -> Json:
    """Return the row of a lookup.

    Raises:
        RowNotFound, RowDeleted, HistoryExpired: there is none.
    """
    if found.row is not None:
        return found.row
    kinds: dict[str | None, type[NotFound | HistoryExpired]] = {"row_deleted": RowDeleted, "history_expired": HistoryExpired}
    kind = kinds.get(found.reason, RowNotFound)
    raise kind(kind.status, {"code": found.reason, "detail": f"'{table}' has no row for {key!r}"}, f"{table} {key!r}")


class SqlResult(Sequence[Json]):
    """The result of an SQL script; as a sequence: the rows of its last statement with rows."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        self.statements = tuple(StatementResult(each) for each in answer["results"])
        with_rows = [each.raw for each in self.statements if each.get("rows") is not None]
        self._last: Mapping[str, Any] = with_rows[-1] if with_rows else {"columns": [], "rows": []}

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Name and type of each column."""
        return [(column["name"], column["type"]) for column in self._last["columns"]]

    @property
    def message(self) -> str:
        """What the last statement did, in a sentence."""
        return self.statements[-1].message if self.statements else ""

    @property
    def position(self) -> dict[str, Any] | None:
        """For a SELECT from a table: the position of the table."""
        return self._last.get("position")

    def rows(self) -> list[Json]:
        """Return the rows as columns by name; the last of several columns with the same name."""
        names = [name for name, _ in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self._last["rows"]]

    def arrow(self) -> Any:
        """Return the rows as a ``pyarrow.Table`` with the columns' types."""
        return arrow_of_rows(self.columns, self._last["rows"])

    def polars(self) -> Any:
        """Return the rows as a ``polars.DataFrame``."""
        return polars_of(self.arrow())

    def pandas(self) -> Any:
        """Return the rows as a ``pandas.DataFrame``."""
        return pandas_of(self.arrow())

    @overload
    def __getitem__(self, place: int) -> Json: ...
    @overload
    def __getitem__(self, place: slice) -> list[Json]: ...
    def __getitem__(self, place: int | slice) -> Json | list[Json]:
        return self.rows()[place]

    def __iter__(self) -> Iterator[Json]:
        return iter(self.rows())

    def __len__(self) -> int:
        return len(self._last["rows"])

    def __repr__(self) -> str:
        return f"<SqlResult: {self.message}>"

    def _repr_html_(self) -> str:
        from slackwater.displays.tables import SHOWN_ROWS, table

        done = [each.message for each in self.statements]
        return table("; ".join(done), [name for name, _ in self.columns], self._last["rows"][:SHOWN_ROWS], len(self))


@dataclass(frozen=True, slots=True)
class PushedRow:
    """A row of a push query; ``op`` is ``upsert`` or ``delete``."""

    op: str
    row: Json
    event_time_ms: int | None

    @classmethod
    def of(cls, columns: Sequence[Mapping[str, str]], content: Mapping[str, Any]) -> PushedRow:
        """Return a row from a line of the stream."""
        names = (column["name"] for column in columns)
        return cls(content["op"], dict(zip(names, content["values"], strict=True)), content["event_time_ms"])


def sql_body(
    text: str,
    parameters: Sequence[Any] | Mapping[str, Any] | None,
    properties: Mapping[str, Any] | None,
    variables: Mapping[str, str] | None,
) -> tuple[bytes, dict[str, str | None]]:
    """Return the body and the headers for a script."""
    body = {"sql": text, "parameters": parameters, "properties": properties, "variables": variables}
    given = {name: value for name, value in body.items() if value is not None}
    return json_text(given).encode(), {"content-type": JSON_TYPE}


class ReadOptions(TypedDict, total=False):
    """See ``slackwater.rows.rows.Reading``."""

    as_of: Instant | None
    where: Where | None
    state: Literal["final", "open", "any"] | None
    window_from: Instant | None
    window_to: Instant | None
    order: Literal["asc", "desc"] | None
    min_position: Mapping[str, Mapping[str, int]] | None
    timeout: float | None
    max_staleness: Duration | None
    bigints: Literal["number", "string"] | None

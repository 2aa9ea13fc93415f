"""Bodies and answers of pull reads, with their examples."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.http.schemas import Answer, Position
from engine.expressions.limits import FewFields

MAX_LOOKUP_KEYS = 1_000

_AT = "2025-01-01T00:00:00Z"
_POSITION = {"log:departures": {"0": 9000, "1": 18004}}
ROWS: dict[str, Any] = {
    "table": "delays_by_airport",
    "position": _POSITION,
    "stream_time_ms": 1357041600000,
    "committed_at": _AT,
    "stale": False,
    "as_of_ms": None,
    "history_starts_at_ms": None,
    "truncated": False,
    "next": None,
    "rows": [
        {
            "origin": "JFK", "window_start": "2013-01-01T10:00:00Z", "window_end": "2013-01-01T11:00:00Z", "flights": 17,
            "mean_delay": 4.2, "worst": 48, "$state": "final",
        }
    ],
}  # fmt: skip
LOOKUP_BODY: dict[str, Any] = {"keys": [{"origin": "JFK"}, {"origin": "XXX"}]}
LOOKUP: dict[str, Any] = {
    "table": "weather",
    "position": {"log:weather": {"0": 2209}},
    "stream_time_ms": 1357041600000,
    "committed_at": _AT,
    "stale": False,
    "as_of_ms": 1357038000000,
    "history_starts_at_ms": 1356868800000,
    "results": [
        {"found": True, "reason": None, "row": {"origin": "JFK", "temp": 39.02, "observed_at": "2013-01-01T10:51:00Z"}},
        {"found": False, "reason": "row_not_found", "row": None},
    ],
}


class ReadAnswer(Answer):
    """Fields of every answer to a pull read."""

    table: str = Field(description="Name of the table.")
    position: Position = Field(
        description="Feed, partition, next offset: the records that this includes.", examples=[{"log:departures": {"0": 27004}}]
    )
    stream_time_ms: int | None = Field(
        description="Stream time of its query as of the last commit, in milliseconds since 1970; null before the first record."
    )
    committed_at: str | None = Field(
        description="Time of its query's last commit; null before the first commit.", json_schema_extra={"format": "date-time"}
    )
    stale: bool = Field(description="True while the query does not run.")
    as_of_ms: int | None = Field(description="The requested event time; null for now.")
    history_starts_at_ms: int | None = Field(
        description="Before this event time only a key's latest version can answer; null if the table is not versioned."
    )


class RowsAnswer(ReadAnswer):
    """Rows of a table. Rows of windowed tables have `$state`; versions have `$valid_from_ms` and `$valid_to_ms`."""

    truncated: bool = Field(description="The requested range of versions begins before the retained history.")
    next: str | None = Field(description="Cursor of the next page; null on the last.")
    rows: list[dict[str, Any]] = Field(description="Rows, or versions, as columns by name.")


class LookupResult(BaseModel):
    """The result for one key."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    found: bool = Field(description="Whether there is a row for the key.")
    reason: Literal["row_not_found", "row_deleted", "history_expired"] | None = Field(description="Why there is no row.")
    row: dict[str, Any] | None = Field(description="The row, as columns by name; null if there is none.")


class LookupAnswer(ReadAnswer):
    """One result for each key, in order."""

    results: list[LookupResult] = Field(description="One for each key, in the order of the keys.")


class LookupBody(FewFields):
    """The keys to look up."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    keys: list[Any] = Field(
        min_length=1,
        max_length=MAX_LOOKUP_KEYS,
        description="Objects with every key column; for a key of one column, also bare values.",
    )

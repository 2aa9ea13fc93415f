"""What a pull read may say in its query string, apart from conditions on rows."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from app.errors.app_errors import BadRequest, Fault
from app.http.parameters import DEFAULT_LIMIT, MAX_LIMIT, MOST_OF_PAGE, bad_parameter
from app.http.values import MAX_INSTANT_MS, parse_instant_ms
from app.reads.freshness import MAX_WAIT_SECONDS, Freshness, parse_freshness

_TIME = "RFC 3339, or milliseconds since 1970."


class FreshParameters(BaseModel):
    """How fresh, as of when, and how numbers are written: what every pull read takes."""

    model_config = ConfigDict(frozen=True)

    as_of: str | None = Field(
        None, max_length=64, description=f"Rows as they were at this event time, inclusive; of a versioned table. {_TIME}"
    )
    as_of_ms: int | None = Field(None, ge=0, le=MAX_INSTANT_MS, description="The same as milliseconds since 1970.")
    min_position: str | None = Field(
        None,
        max_length=16_384,
        description="Wait until the answer includes this position: JSON as in an answer's `position`. "
        "A record appended at offset n is included from n + 1 on.",
        examples=['{"log:departures":{"0":9000}}'],
    )
    timeout: float | None = Field(
        None, ge=0, le=MAX_WAIT_SECONDS, description="Seconds to wait for `min_position` at most (30); then 504."
    )
    max_staleness: str | None = Field(
        None,
        max_length=64,
        description="Answer 503 `too_stale` where the last commit is older than this duration, unless the query runs and has read "
        "everything there is in its log feeds.",
        examples=["10s"],
    )
    bigints: Literal["number", "string"] = Field(
        "number",
        description="How bigint and decimal values are written in JSON: many clients lose digits of numbers beyond 2^53.",
    )

    def at_ms(self) -> int | None:
        """Return the time asked for, None for now."""
        if self.as_of is not None and self.as_of_ms is not None:
            raise conflicting("as_of_ms", "give either `as_of` or `as_of_ms`")
        return self.as_of_ms if self.as_of is None else instant_ms("as_of", self.as_of)

    def freshness(self) -> Freshness:
        """Return what is asked of the answer's freshness."""
        return parse_freshness(self.min_position, self.timeout, self.max_staleness)


class RowsParameters(FreshParameters):
    """What reads of rows take besides."""

    from_: str | None = Field(
        None,
        alias="from",
        max_length=64,
        description=f"Versions instead of rows: those valid at or after this event time. {_TIME}",
    )
    to: str | None = Field(
        None, max_length=64, description=f"Versions instead of rows: those valid at or before this event time. {_TIME}"
    )
    order: Literal["asc", "desc"] = Field("asc", description="By key; of one key's versions by event time.")
    state: Literal["final", "open", "any"] | None = Field(
        None,
        description="Which windows: those whose row can no longer change, those that are open, or both. Default: `final` of a table "
        "suppressed until its windows close, else `any`.",
    )
    window_from: str | None = Field(None, max_length=64, description=f"Least start of a window, inclusive. {_TIME}")
    window_to: str | None = Field(None, max_length=64, description=f"Greatest start of a window, exclusive. {_TIME}")
    limit: int = Field(DEFAULT_LIMIT, ge=1, le=MAX_LIMIT, description=MOST_OF_PAGE)
    cursor: str | None = Field(
        None,
        max_length=16_384,
        description="`next` of the page before, with the same filters and order; absent for the first page. Read on as long as `next` is "
        "not null.",
    )

    def range_ms(self) -> tuple[int, int] | None:
        """Return the range of a history read, None for a read of rows."""
        if self.from_ is None and self.to is None:
            return None
        if self.as_of is not None or self.as_of_ms is not None:
            raise conflicting("as_of", "rows as of a time, or versions in a range: leave `from` and `to` out, or `as_of`")
        start = 0 if self.from_ is None else instant_ms("from", self.from_)
        end = MAX_INSTANT_MS if self.to is None else instant_ms("to", self.to)
        if start > end:
            raise bad_parameter("to", "is before `from`")
        return start, end

    def bounds_ms(self) -> tuple[int | None, int | None]:
        """Return the bounds of the windows' starts."""
        return (
            None if self.window_from is None else instant_ms("window_from", self.window_from),
            None if self.window_to is None else instant_ms("window_to", self.window_to),
        )


Fresh = Annotated[FreshParameters, Query()]
Rows = Annotated[RowsParameters, Query()]


def instant_ms(parameter: str, text: str) -> int:
    """Read a time.

    Raises:
        BadRequest: ``bad_parameter``.
    """
    try:
        return parse_instant_ms(text)
    except ValueError as error:
        raise bad_parameter(parameter, str(error)) from error


def conflicting(parameter: str, detail: str) -> BadRequest:
    """Return the error for parameters that exclude each other."""
    return BadRequest("conflicting_parameters", detail, [Fault(f"?{parameter}", "conflicting_parameters", detail)])

"""Query parameters of pull reads, except conditions on rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from app.errors.app_errors import BadRequest, Fault
from app.http.parameters import DEFAULT_LIMIT, MAX_LIMIT, MOST_OF_PAGE, ParameterFaults, bad_parameter
from app.http.values import MAX_INSTANT_MS, parse_instant_ms
from app.reads.freshness import ANY_FRESHNESS, MAX_WAIT_SECONDS, Freshness, parse_freshness

_TIME = "RFC 3339, or milliseconds since 1970."


@dataclass(frozen=True, slots=True)
class AskedRead:
    """What a pull read asks for.

    Attributes:
        at_ms: rows as of this event time; None: now.
        range_ms: versions that were valid then; None: rows.
        bounds_ms: of the windows' starts.
        freshness: of the answer.
    """

    at_ms: int | None = None
    range_ms: tuple[int, int] | None = None
    bounds_ms: tuple[int | None, int | None] = (None, None)
    freshness: Freshness = ANY_FRESHNESS


class FreshParameters(BaseModel):
    """Parameters of every pull read: freshness, time, and form of numbers."""

    model_config = ConfigDict(frozen=True)

    as_of: str | None = Field(
        None, max_length=64, description=f"Rows as of this event time, inclusive; for a versioned table. {_TIME}"
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
        description="Answer 503 `too_stale` if the last commit is older than this duration, unless the query runs and has read "
        "all records in its log feeds.",
        examples=["10s"],
    )
    bigints: Literal["number", "string"] = Field(
        "number",
        description="Form of bigint and decimal values in JSON: many clients lose digits of numbers beyond 2^53.",
    )

    def asked(self) -> AskedRead:
        """Return what is asked for.

        Raises:
            BadRequest: with the fault of every parameter.
        """
        asked, faults = AskedRead(), ParameterFaults()
        with faults.part():
            asked = replace(asked, at_ms=self._at_ms())
        with faults.part():
            asked = replace(asked, freshness=parse_freshness(self.min_position, self.timeout, self.max_staleness))
        faults.raise_all()
        return asked

    def _at_ms(self) -> int | None:
        if self.as_of is not None and self.as_of_ms is not None:
            raise conflicting("as_of_ms", "give either `as_of` or `as_of_ms`")
        return self.as_of_ms if self.as_of is None else instant_ms("as_of", self.as_of)


class RowsParameters(FreshParameters):
    """Additional parameters of reads of rows."""

    from_: str | None = Field(
        None,
        alias="from",
        max_length=64,
        description=f"Versions instead of rows: valid at or after this event time. {_TIME}",
    )
    to: str | None = Field(
        None, max_length=64, description=f"Versions instead of rows: valid at or before this event time. {_TIME}"
    )
    order: Literal["asc", "desc"] = Field("asc", description="By key; versions of one key by event time.")
    state: Literal["final", "open", "any"] | None = Field(
        None,
        description="Windows by state: `final`: the row can no longer change, `open`: it can, or both. Default: `final` for a table "
        "suppressed until its windows close, otherwise `any`.",
    )
    window_from: str | None = Field(None, max_length=64, description=f"Lower bound of a window's start, inclusive. {_TIME}")
    window_to: str | None = Field(None, max_length=64, description=f"Upper bound of a window's start, exclusive. {_TIME}")
    limit: int = Field(DEFAULT_LIMIT, ge=1, le=MAX_LIMIT, description=MOST_OF_PAGE)
    cursor: str | None = Field(
        None,
        max_length=16_384,
        description="`next` of the previous page, with the same filters and order; absent for the first page. Continue while `next` is "
        "not null.",
    )

    def asked(self) -> AskedRead:
        asked, faults = AskedRead(), ParameterFaults()
        with faults.part():
            asked = super().asked()
        with faults.part():
            asked = replace(asked, range_ms=self._range_ms())
        with faults.part():
            asked = replace(asked, bounds_ms=_instants("window_from", self.window_from, "window_to", self.window_to))
        faults.raise_all()
        return asked

    def _range_ms(self) -> tuple[int, int] | None:
        if self.from_ is None and self.to is None:
            return None
        if self.as_of is not None or self.as_of_ms is not None:
            raise conflicting("as_of", "rows as of a time, or versions in a range: leave `from` and `to` out, or `as_of`")
        first, last = _instants("from", self.from_, "to", self.to)
        start, end = first or 0, MAX_INSTANT_MS if last is None else last
        if start > end:
            raise bad_parameter("to", "is before `from`")
        return start, end


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


def _instants(first: str, start: str | None, last: str, end: str | None) -> tuple[int | None, int | None]:
    """Read two times, each of which may be missing; the faults of both are raised together."""
    faults = ParameterFaults()
    found: list[int | None] = []
    for parameter, text in ((first, start), (last, end)):
        with faults.part():
            found.append(None if text is None else instant_ms(parameter, text))
    faults.raise_all()
    return found[0], found[1]


def conflicting(parameter: str, detail: str) -> BadRequest:
    return BadRequest("conflicting_parameters", detail, [Fault(f"?{parameter}", "conflicting_parameters", detail)])

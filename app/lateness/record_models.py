"""Bodies and answers about late records."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from app.http.schemas import Answer, Counter, Position
from app.http.values import parse_instant_ms
from engine.expressions.limits import FewFields

MAX_IDS = 10_000


class LateRecord(Answer):
    """A record that came too late, or whose table history had expired."""

    id: int = Field(description="Rises with every late record; replays use it.")
    input: str = Field(description="The operator that found it late.", examples=["w"])
    reason: str = Field(description="Why it is here, as a code.", examples=["late_diverted"])
    event_time_ms: int = Field(description="Its event time, in milliseconds since 1970.")
    stream_time_ms: int | None = Field(description="Stream time when it came.")
    offset: int | None = Field(description="Its offset, if it is a record of an input.")
    record: Any = Field(description="The record as the operator saw it, or an excerpt of it as text.")
    at: datetime = Field(description="Time when it was stored.")
    replayed_at: datetime | None = Field(description="Time of its last replay; null: never.")
    replay_id: UUID | None = Field(description="Its last replay; null: none.")


class LateRecordPage(Answer):
    """Late records, and their counts."""

    items: list[LateRecord] = Field(description="Stored late records, in the requested order.")
    next: str | None = Field(description="Cursor of the next page; null on the last.")
    counters: list[Counter] = Field(description="All counts of the query, by input and reason, of stored and other records.")


def _instant(value: str | int | None) -> str | int | None:
    if value is not None:
        parse_instant_ms(str(value))
    return value


Instant = Annotated[str | int | None, AfterValidator(_instant)]


class LateRecordFilter(FewFields):
    """A filter of late records: they match every field that is set; without a field all match."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    reason: str | None = Field(
        default=None, max_length=100, pattern="^[a-z_]+$", description="Only of this reason.", examples=["late_diverted"]
    )
    input: str | None = Field(default=None, max_length=255, pattern=r"^[^\x00]+$", description="Only records of this operator.")
    from_: Instant = Field(default=None, alias="from", description="First event time.", examples=["2013-01-01T00:00:00Z"])
    to: Instant = Field(default=None, description="Up to, not including, this event time.")
    key: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="Column → value of the record.", examples=[{"origin": "JFK"}]
    )


LateRecordId = Annotated[int, Field(gt=0, lt=2**63)]


class ReplayBody(FewFields):
    """The late records to replay: by id, or by a filter. The filter `{}` matches all."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ids: list[LateRecordId] | None = Field(
        default=None, min_length=1, max_length=MAX_IDS, description="Ids of `…/late-records`.", examples=[[12, 13]]
    )
    filter: LateRecordFilter | None = Field(default=None, description="Instead of `ids`: a filter. `{}`: all.")
    again: bool = Field(default=False, description="Include records that were replayed before.")

    @model_validator(mode="after")
    def _names_one(self) -> ReplayBody:
        if (self.ids is None) == (self.filter is None):
            is_neither = self.ids is None
            raise ValueError(
                'say which late records: `ids` ({"ids": [12, 13]}) or `filter` ({"filter": {"reason": "late_dropped"}}; all of them: '
                '{"filter": {}})'
                if is_neither
                else "send `ids` or `filter`, not both"
            )
        return self


class RefusedReplay(Answer):
    """A late record that cannot be replayed."""

    id: int = Field(description="Id of the late record.")
    code: Literal["replay_not_possible", "record_cut"] = Field(
        description="Why it cannot be replayed, as a code; `GET /v1/errors/{code}` explains it."
    )
    detail: str = Field(description="Why it cannot be replayed.")


class ReplayAnswer(Answer):
    """A replay that was accepted; the query's next batch includes it."""

    replay_id: UUID | None = Field(description="Null if all records were replayed before.")
    accepted: int = Field(description="Records that go through the query again.", examples=[2])
    already_replayed: int = Field(description="Records left out because they were replayed before.")
    refused_count: int = Field(description="Number of records that cannot be replayed.")
    refused: list[RefusedReplay] = Field(description="The first hundred records that cannot be replayed.")
    position: Position = Field(description="The query's position when these records are in its result; usable as `min_position`.")
    more: bool = Field(description="More records match the filter: repeat the request.")


_RECORD: dict[str, Any] = {
    "id": 12,
    "input": "w",
    "reason": "late_diverted",
    "event_time_ms": 1357036800000,
    "stream_time_ms": 1357045200000,
    "offset": 511,
    "record": {"departures.origin": "JFK", "departures.dep_delay": 170},
    "at": "2025-11-21T08:00:00Z",
    "replayed_at": None,
    "replay_id": None,
}
LATE_RECORDS: dict[str, Any] = {
    "items": [_RECORD],
    "next": "WzEyXQ",
    "counters": [{"input": "w", "reason": "late_diverted", "count": 42}],
}
REPLAY_BY_ID: dict[str, Any] = {"ids": [12]}
REPLAY_BY_FILTER: dict[str, Any] = {
    "filter": {"reason": "late_diverted", "from": "2013-01-01T00:00:00Z", "to": "2013-01-02T00:00:00Z", "key": {"origin": "JFK"}}
}
REPLAYED: dict[str, Any] = {
    "replay_id": "0193f1d2-7c1e-7000-8000-3f0c7c9d2b11",
    "accepted": 1,
    "already_replayed": 0,
    "refused_count": 0,
    "refused": [],
    "position": {"replay:0193f1d2-7c1e-7000-8000-0f0c7c9d2b12": {"0": 1}},
    "more": False,
}

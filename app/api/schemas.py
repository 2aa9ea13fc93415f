"""Bodies of requests and answers. Answers have no defaults: a client sees every field, always."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from engine.definition.limits import FewFields

QueryState = Literal["stopped", "starting", "running", "paused", "stopping", "backoff", "failed"]
DesiredState = Literal["running", "paused", "stopped"]
Position = dict[str, dict[str, int]]

_CREATED = "2025-11-21T08:00:00Z"


def refers_to(*schemas: str) -> dict[str, Any]:
    """Say which component a field has that is passed on as JSON; ``openapi`` puts the reference there."""
    return {"x-refers-to": list(schemas)}


class Answer(BaseModel):
    """Common behaviour of answers."""

    model_config = ConfigDict(frozen=True)


class PartitionRange(Answer):
    """What a partition of a log holds: offsets from ``start_offset`` up to, not including, ``next_offset``."""

    partition: int = Field(examples=[0])
    start_offset: int = Field(examples=[0])
    next_offset: int = Field(examples=[27004])


class RelationAnswer(Answer):
    """A stream or a table."""

    name: str = Field(examples=["departures"])
    kind: Literal["stream", "table"]
    origin: Literal["source", "derived"] = Field(description="Registered by a user, or produced by a query.")
    key: list[str] = Field(description="Key columns; may be empty for a stream.", examples=[["origin"]])
    columns: dict[str, str] = Field(description="Columns and types, in order.", examples=[{"origin": "string", "temp": "double"}])
    definition: dict[str, Any] | None = Field(
        description="A source's definition as stored, every default spelled out; null of a result.",
        json_schema_extra=refers_to("StreamDefinition", "TableDefinition"),
    )
    produced_by: str | None = Field(
        description="The query that writes it; null for a source, and for a result that was kept when its query was deleted."
    )
    read_by: list[str] = Field(description="Queries that read it.")
    partitions: list[PartitionRange] | None = Field(description="Where its log begins and ends; null without a log of its own.")
    version: int
    created_at: datetime = Field(examples=[_CREATED])
    updated_at: datetime = Field(examples=[_CREATED])


class WarningItem(Answer):
    """Something that was accepted and may still surprise."""

    pointer: str = Field(description="JSON pointer of the definition's field that could be changed.", examples=["/window/grace"])
    code: str = Field(examples=["no_grace_on_derived"])
    detail: str = Field(description="What happens.")
    cure: str = Field(description="What to do where that is not meant.")


class RegisteredAnswer(RelationAnswer):
    """A stream or a table as it was registered."""

    warnings: list[WarningItem] = Field(description="What may surprise of this definition; empty where nothing does.")


class RelationPage(Answer):
    """A page of streams or tables, by name."""

    items: list[RelationAnswer]
    next: str | None = Field(description="Cursor of the next page; null on the last.")


class AppendedRange(Answer):
    """Where appended records went: ``count`` consecutive offsets of one partition."""

    partition: int = Field(examples=[0])
    first_offset: int = Field(examples=[1041])
    last_offset: int = Field(examples=[1042])
    count: int = Field(examples=[2])


class RejectedRecord(Answer):
    """A record that was not appended. It is kept and can be read at …/rejects."""

    index: int = Field(description="Its place in the request, from 0.", examples=[2])
    code: str = Field(examples=["wrong_type"])
    detail: str


class AppendAnswer(Answer):
    """What became of the records of one request."""

    appended: int = Field(examples=[2])
    offsets: list[AppendedRange]
    rejected_count: int = Field(examples=[1])
    rejected: list[RejectedRecord] = Field(description="The refused records, the first thousand of them.")
    warnings: list[WarningItem] = Field(
        description="`event_times_before_1990`: the event times of all appended records lie before 1990, as seconds do that are read as"
        " milliseconds."
    )


class QueryAnswer(Answer):
    """A query: its definition as stored and its wish."""

    name: str
    definition: dict[str, Any] = Field(
        description="As stored, every default spelled out.", json_schema_extra=refers_to("QueryDefinition")
    )
    desired_state: DesiredState
    state: QueryState
    internal: bool = Field(description="It keeps the rows of a source with `materialize` and follows that table's definition.")
    generation: int = Field(description="Rises when the definition changes.")
    version: int = Field(description="Rises with every write; the ETag.")
    created_at: datetime
    updated_at: datetime


class StoredQueryAnswer(QueryAnswer):
    """A query as it was stored."""

    warnings: list[WarningItem] = Field(description="What may surprise of this definition; empty where nothing does.")


class QueryPage(Answer):
    """A page of queries, by name."""

    items: list[QueryAnswer]
    next: str | None = Field(description="Cursor of the next page; null on the last.")


class DesiredStateBody(FewFields):
    """The wish."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    state: DesiredState


class WishAnswer(Answer):
    """A wish that was noted; the status tells when it has come true."""

    name: str
    desired_state: DesiredState
    state: QueryState
    generation: int
    version: int
    status: str = Field(description="Where to look.", examples=["/v1/queries/delays/status?wait_for=running"])
    warnings: list[WarningItem] = Field(description="`no_driver_has_room`: what is wished waits for a driver.")


class PartitionProgress(Answer):
    """How far one partition of one feed has been read."""

    partition: int
    next_offset: int = Field(description="The next record to read; everything before is in the result.")
    end_offset: int | None = Field(description="The feed's present end; null where only the driver can know (files).")
    lag: int | None = Field(description="Records between the two.")


class FeedProgress(Answer):
    """How far one feed has been read."""

    feed: str
    relations: list[str] = Field(description="The query's relations that read it.")
    partitions: list[PartitionProgress]


class Counter(Answer):
    """How often something happened at one input or operator since the query began with this state."""

    input: str = Field(examples=["departures"])
    reason: str = Field(examples=["late_joined"])
    count: int


class Reason(Answer):
    """What keeps a query from what was wished, and what can be done about it."""

    code: str = Field(examples=["no_driver_has_room"])
    detail: str


class ProblemItem(Answer):
    """One fault of a definition."""

    pointer: str = Field(description="JSON pointer into the definition.", examples=["/joins/0/grace"])
    code: str = Field(
        description="Stable code; `GET /v1/errors/{code}` explains it.", examples=["grace_exceeds_history_retention"]
    )
    detail: str = Field(description="What is wrong and what to do about it.")


class QueryError(BaseModel):
    """What is wrong with a query that failed or is retried. Further fields come with later versions."""

    model_config = ConfigDict(extra="allow", frozen=True)

    code: str = Field(description="Stable code; `GET /v1/errors/{code}` explains it.", examples=["data_invalid"])
    detail: str = Field(description="What happened and what to do.")
    domain: Literal["user", "external", "internal"] | None = Field(default=None, description="Whose the fault is.")
    retryable: bool | None = Field(default=None, description="Whether the next launch may go better with nothing changed.")
    errors: list[ProblemItem] | None = Field(default=None, description="The faults of a definition that was refused.")


class StatusAnswer(Answer):
    """What the service knows of a query."""

    name: str
    state: QueryState
    phase: str | None = Field(
        description="What it does inside its state. `starting`: `queued`, `fencing`, `planning`, `restoring`; `running`, until the first"
        " commit: `preparing` (Spark sets up the query's processes), `first_batch` (the first batch is under way)."
    )
    desired_state: DesiredState
    conditions: list[str] = Field(
        description="`unreachable`: its driver has not been heard of; `unplaced`: it wants a driver and has none; `stale`: it does not"
        " follow its inputs now; `waits_for_producer`: it runs, and leaves records unread until the query that writes another of its inputs"
        " has come as far in event time."
    )
    reason: Reason | None = Field(
        description="Why it is not what was wished: its error, that no driver is there or has room, or which query it waits for, how far"
        " that is behind and what can be done (`waits_for_producer`)."
    )
    state_since: datetime
    generation: int
    observed_generation: int = Field(description="The generation the driver works on; 0 before the first start.")
    epoch: int = Field(description="Number of the launch.")
    attempt: int
    next_attempt_at: datetime | None
    heartbeat_at: datetime | None
    error: QueryError | None = Field(description="Why it failed or is being retried.")
    batch_id: int | None
    committed_at: datetime | None
    stream_time_ms: int | None
    progress: list[FeedProgress]
    read_rows: int = Field(description="Records read since the query began with this state.", examples=[27004])
    emitted_rows: int = Field(description="Records or changes of rows written since then.", examples=[1743])
    clocks: dict[str, int | None] = Field(description="Operator to stream time, the smallest over its tasks.")
    buffered: dict[str, int] = Field(description="Operator to records that wait inside it.")
    counters: list[Counter]


class Event(Answer):
    """Something that happened to a query."""

    id: int
    at: datetime
    kind: str = Field(examples=["query_transitioned"])
    from_state: str | None
    to_state: str | None
    epoch: int | None
    actor: str
    detail: dict[str, Any] | None


class EventPage(Answer):
    """Events, oldest first; ``next`` resumes behind the last one."""

    items: list[Event]
    next: str | None


class Run(Answer):
    """One launch of a query."""

    epoch: int
    generation: int
    driver_id: str | None
    started_at: datetime
    running_at: datetime | None
    ended_at: datetime | None
    end_reason: str | None
    error: QueryError | None = Field(description="The error that ended it.")


class RunPage(Answer):
    """Launches, newest first."""

    items: list[Run]
    next: str | None


class Reject(Answer):
    """A record that could not be read."""

    id: int
    partition: int | None
    offset: int | None = Field(description="Its place in the feed; null where it never entered one.")
    reason: str
    detail: str
    excerpt: str | None = Field(
        description="How it begins; null where it is from a file and the key is not an admin's, or from a feed that has relations outside of "
        "the key's scope."
    )
    at: datetime


class RejectPage(Answer):
    """Rejects, newest first."""

    items: list[Reject]
    next: str | None
    kept: dict[str, int] = Field(description="Reason to number of kept rejects.", examples=[{"event_time_missing": 8255}])


class RecordsAnswer(Answer):
    """Records of one partition of a stream, or of a derived stream as a whole.

    Each has ``$offset``, ``$event_time_ms`` and the stream's columns.

    One that came of a replayed late record also has ``$replayed``: true.
    """

    stream: str
    partition: int | None = Field(description="Null where a derived stream is read as a whole.")
    records: list[dict[str, Any]]
    next_offset: int = Field(description="Where to go on.")
    end_offset: int = Field(description="Where the partition, or the whole, ends at present.")
    position: Position
    stream_time_ms: int | None
    committed_at: datetime | None
    stale: bool


class Health(Answer):
    """Alive."""

    status: Literal["ok"]


class Readiness(Answer):
    """What the service needs, and whether it is there."""

    status: Literal["ready", "not_ready"]
    checks: dict[str, str] = Field(description="`database`, the `schema`'s version, `driver`: ready, starting, failing or none.")


class Version(Answer):
    """What runs here."""

    version: str
    python: str
    api: Literal["v1"]

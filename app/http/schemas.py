"""Bodies of requests and answers. Answers have no defaults: a client always receives every field."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from engine.expressions.limits import FewFields

QueryState = Literal["stopped", "starting", "running", "paused", "stopping", "backoff", "failed"]
DesiredState = Literal["running", "paused", "stopped"]
Position = dict[str, dict[str, int]]

_CREATED = "2025-11-21T08:00:00Z"


def refers_to(*schemas: str) -> dict[str, Any]:
    """Name the component of a field that passes through as JSON; ``openapi`` puts the reference there."""
    return {"x-refers-to": list(schemas)}


class Answer(BaseModel):
    """Common behaviour of answers."""

    model_config = ConfigDict(frozen=True)


class PartitionRange(Answer):
    """The range of a partition of a log: offsets from ``start_offset`` up to, not including, ``next_offset``."""

    partition: int = Field(description="Number of the partition, from 0.", examples=[0])
    start_offset: int = Field(description="Offset of the oldest record.", examples=[0])
    next_offset: int = Field(description="Offset of the next record.", examples=[27004])


class RelationAnswer(Answer):
    """A stream or a table."""

    name: str = Field(description="Name; streams and tables share one namespace.", examples=["departures"])
    kind: Literal["stream", "table"] = Field(description="Whether it is a stream or a table.")
    origin: Literal["source", "derived"] = Field(description="Registered by a user, or produced by a query.")
    key: list[str] = Field(description="Key columns; may be empty for a stream.", examples=[["origin"]])
    columns: dict[str, str] = Field(description="Columns and types, in order.", examples=[{"origin": "string", "temp": "double"}])
    definition: dict[str, Any] | None = Field(
        description="A source's definition as stored, with every default; null for a result.",
        json_schema_extra=refers_to("StreamDefinition", "TableDefinition"),
    )
    produced_by: str | None = Field(
        description="The query that writes it; null for a source, and for a result that outlived its query."
    )
    read_by: list[str] = Field(description="Queries that read it.")
    parts: list[str] = Field(
        description="Streams whose records are records of this one too: results of queries with `into.append_to`. Followers of this "
        "stream receive them; `/records` reads each by its offsets (`part=`); a query that reads this stream reads all, merged by event time."
    )
    append_to: str | None = Field(description="The stream that it is a part of; null: of none.")
    read_only: bool = Field(
        description="Another system fills it (`CREATE SOURCE …`): appends are refused, and no query may append to it."
    )
    partitions: list[PartitionRange] | None = Field(
        description="Range of each partition of its log; null without a log of its own."
    )
    version: int = Field(description="Rises with every write; the ETag.")
    created_at: datetime = Field(description="Time of creation.", examples=[_CREATED])
    updated_at: datetime = Field(description="Time of the last write of its definition.", examples=[_CREATED])


class WarningItem(Answer):
    """A fact about an accepted definition that may surprise its author."""

    pointer: str = Field(description="JSON pointer of the definition's field that could be changed.", examples=["/window/grace"])
    code: str = Field(description="Stable code; `GET /v1/errors/{code}` explains it.", examples=["waits_long"])
    detail: str = Field(description="What happens.")
    cure: str = Field(description="What to do if that is not intended.")
    type: str = Field(description="URL of the explanation of the code, relative to the service.")


class RegisteredAnswer(RelationAnswer):
    """A stream or a table as it was registered."""

    warnings: list[WarningItem] = Field(description="Possible surprises of this definition; empty if there are none.")
    sql: str = Field(description="The equivalent statement.", examples=['CREATE STREAM "DEPARTURES" (…) WITH (…)'])


class RelationPage(Answer):
    """A page of streams or tables, by name."""

    items: list[RelationAnswer] = Field(description="Streams or tables, by name.")
    next: str | None = Field(description="Cursor of the next page; null on the last.")


class AppendedRange(Answer):
    """The offsets of appended records: ``count`` consecutive offsets of one partition."""

    partition: int = Field(description="Number of the partition, from 0.", examples=[0])
    first_offset: int = Field(description="First of these offsets.", examples=[1041])
    last_offset: int = Field(description="Last of these offsets.", examples=[1042])
    count: int = Field(description="Number of records.", examples=[2])


class RejectedRecord(Answer):
    """A record that was not appended. It is stored as a reject; …/rejects shows it."""

    index: int = Field(description="Its index in the request, from 0.", examples=[2])
    code: str = Field(description="Stable code of the reason; `GET /v1/errors/{code}` explains it.", examples=["wrong_type"])
    detail: str = Field(description="What is wrong with the record.")


class AppendAnswer(Answer):
    """The result of an append request."""

    appended: int = Field(description="Number of appended records.", examples=[2])
    offsets: list[AppendedRange] = Field(description="Their offsets, by partition; empty if none was appended.")
    rejected_count: int = Field(description="Number of rejected records.", examples=[1])
    rejected: list[RejectedRecord] = Field(description="The first thousand rejected records.")
    older_count: int = Field(
        description="For change events: number of events left out, because a newer change of the key, or the same one, came before.",
        examples=[0],
    )
    warnings: list[WarningItem] = Field(
        description="`event_times_before_1990`: the event times of all appended records are before 1990, as happens if seconds are read as"
        " milliseconds."
    )


class ForkOrigin(Answer):
    """The origin of a fork."""

    query: str = Field(description="The forked query, by its name at that time.", examples=["delays_by_airport"])
    batch_id: int | None = Field(
        description="Its newest batch at that time; null: it had no commit, and the fork started from scratch."
    )
    committed_at: datetime | None = Field(description="Time of that commit.")


class QueryAnswer(Answer):
    """A query: its definition as stored and its desired state."""

    name: str = Field(description="Name of the query.")
    definition: dict[str, Any] = Field(
        description="As stored, with every default.", json_schema_extra=refers_to("QueryDefinition")
    )
    desired_state: DesiredState = Field(description="The desired state.")
    state: QueryState = Field(description="Current state.")
    internal: bool = Field(
        description="It materialises the rows of a source (`materialize`) and follows that table's definition."
    )
    fork_of: ForkOrigin | None = Field(description="The query that it is a fork of, and the commit; null: it is not a fork.")
    generation: int = Field(description="Rises when the definition changes.")
    version: int = Field(description="Rises with every write; the ETag.")
    created_at: datetime = Field(description="Time of creation.")
    updated_at: datetime = Field(description="Time of the last write of its definition or desired state.")


class OneQueryAnswer(QueryAnswer):
    """A query, and its equivalent in SQL."""

    sql: str = Field(description="The statement equivalent to the definition.")
    statement: str | None = Field(
        description="The original text of the statement that made it; null if JSON made it, or has changed it since."
    )


class StoredQueryAnswer(QueryAnswer):
    """A stored query with its warnings."""

    warnings: list[WarningItem] = Field(description="Possible surprises of this definition; empty if there are none.")


class QueryPage(Answer):
    """A page of queries, by name."""

    items: list[QueryAnswer] = Field(description="Queries, by name.")
    next: str | None = Field(description="Cursor of the next page; null on the last.")


class DesiredStateBody(FewFields):
    """The desired state."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    state: DesiredState = Field(
        description="The desired state: `running`; `paused`: its state stays loaded; `stopped`: its resources are released."
    )


class AcceptedAnswer(Answer):
    """A stored desired state; the status shows when the query has reached it."""

    name: str = Field(description="Name of the query.")
    desired_state: DesiredState = Field(description="The desired state.")
    state: QueryState = Field(description="Current state.")
    generation: int = Field(description="Rises when the definition changes.")
    version: int = Field(description="Rises with every write; the ETag.")
    status: str = Field(description="URL of the status.", examples=["/v1/queries/delays/status?wait_for=running"])
    warnings: list[WarningItem] = Field(description="`waiting_for_place`: the desired state waits for a driver.")


class Counter(Answer):
    """A count of one input or operator since the query began with this state."""

    input: str = Field(description="Alias of the input, or name of the operator.", examples=["departures"])
    reason: str = Field(description="What is counted, as a code.", examples=["late_joined"])
    count: int = Field(description="The count.")


class ProblemItem(Answer):
    """One fault of a definition."""

    pointer: str = Field(description="JSON pointer into the definition.", examples=["/joins/0/grace"])
    code: str = Field(
        description="Stable code; `GET /v1/errors/{code}` explains it.", examples=["grace_exceeds_history_retention"]
    )
    detail: str = Field(description="What is wrong and what to do about it.")
    type: str | None = Field(default=None, description="URL of the explanation of the code, relative to the service.")


class QueryError(BaseModel):
    """The error of a query that failed or is retried. Later versions may add fields."""

    model_config = ConfigDict(extra="allow", frozen=True)

    code: str = Field(description="Stable code; `GET /v1/errors/{code}` explains it.", examples=["data_invalid"])
    detail: str = Field(description="What happened and what to do.")
    domain: Literal["user", "external", "internal"] | None = Field(default=None, description="Who can fix it.")
    retryable: bool | None = Field(default=None, description="Whether the next launch may succeed without a change.")
    errors: list[ProblemItem] | None = Field(default=None, description="The faults of an invalid definition.")


class RecordsAnswer(Answer):
    """Records of one partition of a stream, or of a derived stream as a whole.

    Each has ``$offset``, ``$event_time_ms`` and the stream's columns.

    A record from a replayed late record also has ``$replayed``: true; one without a value has ``$op``: ``delete``.
    """

    stream: str = Field(description="Name of the stream.")
    part: str | None = Field(description="The part of the stream that these records are from; null: its own log.")
    parts: list[str] = Field(
        description="Results that queries append to the stream; read each with `part=`. `/changes` has all records together."
    )
    partition: int | None = Field(description="Null if a derived stream is read as a whole.")
    partition_count: int | None = Field(
        description="Number of partitions of the stream, from 0; each is read separately. Null if a derived stream is read as a whole."
    )
    records: list[dict[str, Any]] = Field(description="Records in offset order.")
    next_offset: int = Field(description="Offset to continue at.")
    end_offset: int = Field(description="Current end of the partition, or of the whole stream.")
    position: Position = Field(description="Feed, partition, next offset: what a derived stream includes; empty for a source.")
    stream_time_ms: int | None = Field(
        description="Stream time of its query as of the last commit, in milliseconds since 1970; null for a source, and before the first record."
    )
    committed_at: datetime | None = Field(
        description="Time of its query's last commit; null for a source, and before the first commit."
    )
    stale: bool = Field(description="True while its query does not run; false for a source.")


class Health(Answer):
    """The process is alive."""

    status: Literal["ok"] = Field(description="Always `ok`.")


class Readiness(Answer):
    """Dependencies of the service, and their states."""

    status: Literal["ready", "not_ready"] = Field(description="Always `ready` with status 200; otherwise the answer is 503.")
    checks: dict[str, str] = Field(description="`database`, the `schema`'s version, `driver`: ready, starting, failing or none.")


class Version(Answer):
    """Versions of the service."""

    version: str = Field(description="Version of the service.")
    python: str = Field(description="Version of Python.")
    api: Literal["v1"] = Field(description="Version of the HTTP API, the first part of paths.")

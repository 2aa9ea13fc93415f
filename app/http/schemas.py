"""Bodies of requests and answers. Answers have no defaults: a client sees every field, always."""

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
    """Say which component a field has that is passed on as JSON; ``openapi`` puts the reference there."""
    return {"x-refers-to": list(schemas)}


class Answer(BaseModel):
    """Common behaviour of answers."""

    model_config = ConfigDict(frozen=True)


class PartitionRange(Answer):
    """What a partition of a log holds: offsets from ``start_offset`` up to, not including, ``next_offset``."""

    partition: int = Field(description="Number of the partition, from 0.", examples=[0])
    start_offset: int = Field(description="Offset of the oldest record that is kept.", examples=[0])
    next_offset: int = Field(description="Offset that the next record gets.", examples=[27004])


class RelationAnswer(Answer):
    """A stream or a table."""

    name: str = Field(description="Name; streams and tables share one namespace.", examples=["departures"])
    kind: Literal["stream", "table"] = Field(description="Whether it is a stream or a table.")
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
    parts: list[str] = Field(
        description="Streams whose records are records of this one as well: of queries with `into.append_to`. Who follows this "
        "stream gets them; `/records` reads each by its offsets (`part=`); a query that reads this stream reads them all, merged by event time."
    )
    append_to: str | None = Field(description="The stream that it is a part of; null of none.")
    read_only: bool = Field(description="Others fill it (`CREATE SOURCE …`): appends are refused, and no query may append to it.")
    partitions: list[PartitionRange] | None = Field(description="Where its log begins and ends; null without a log of its own.")
    version: int = Field(description="Rises with every write; the ETag.")
    created_at: datetime = Field(description="When it was made.", examples=[_CREATED])
    updated_at: datetime = Field(description="When its definition was last written.", examples=[_CREATED])


class WarningItem(Answer):
    """Something that was accepted and may still surprise."""

    pointer: str = Field(description="JSON pointer of the definition's field that could be changed.", examples=["/window/grace"])
    code: str = Field(description="Stable code; `GET /v1/errors/{code}` explains it.", examples=["no_grace_on_derived"])
    detail: str = Field(description="What happens.")
    cure: str = Field(description="What to do where that is not meant.")
    type: str = Field(description="Where the code is explained, relative to the service.")


class RegisteredAnswer(RelationAnswer):
    """A stream or a table as it was registered."""

    warnings: list[WarningItem] = Field(description="What may surprise of this definition; empty where nothing does.")
    sql: str = Field(description="The statement that means the same.", examples=['CREATE STREAM "DEPARTURES" (…) WITH (…)'])


class RelationPage(Answer):
    """A page of streams or tables, by name."""

    items: list[RelationAnswer] = Field(description="Streams or tables, by name.")
    next: str | None = Field(description="Cursor of the next page; null on the last.")


class AppendedRange(Answer):
    """Where appended records went: ``count`` consecutive offsets of one partition."""

    partition: int = Field(description="Number of the partition, from 0.", examples=[0])
    first_offset: int = Field(description="Offset of the first of them.", examples=[1041])
    last_offset: int = Field(description="Offset of the last of them.", examples=[1042])
    count: int = Field(description="How many they are.", examples=[2])


class RejectedRecord(Answer):
    """A record that was not appended. It is kept and can be read at …/rejects."""

    index: int = Field(description="Its place in the request, from 0.", examples=[2])
    code: str = Field(description="Stable code of the reason; `GET /v1/errors/{code}` explains it.", examples=["wrong_type"])
    detail: str = Field(description="What is wrong with the record.")


class AppendAnswer(Answer):
    """What became of the records of one request."""

    appended: int = Field(description="Number of appended records.", examples=[2])
    offsets: list[AppendedRange] = Field(description="Where they are, by partition; empty where none was appended.")
    rejected_count: int = Field(description="Number of refused records.", examples=[1])
    rejected: list[RejectedRecord] = Field(description="The refused records, the first thousand of them.")
    older_count: int = Field(
        description="Of change events: how many were left out, because a newer change of their key, or the same one, came before.",
        examples=[0],
    )
    warnings: list[WarningItem] = Field(
        description="`event_times_before_1990`: the event times of all appended records lie before 1990, as seconds do that are read as"
        " milliseconds."
    )


class ForkOrigin(Answer):
    """What a fork has gone on from."""

    query: str = Field(description="The query that was forked, by its name then.", examples=["delays_by_airport"])
    batch_id: int | None = Field(
        description="Its newest batch then; null: it had committed none, and the fork started from scratch."
    )
    committed_at: datetime | None = Field(description="When it had committed that.")


class QueryAnswer(Answer):
    """A query: its definition as stored and its desired state."""

    name: str = Field(description="Name of the query.")
    definition: dict[str, Any] = Field(
        description="As stored, every default spelled out.", json_schema_extra=refers_to("QueryDefinition")
    )
    desired_state: DesiredState = Field(description="The desired state.")
    state: QueryState = Field(description="What it is doing now.")
    internal: bool = Field(description="It keeps the rows of a source with `materialize` and follows that table's definition.")
    fork_of: ForkOrigin | None = Field(description="Of which query it is a fork, and as of which commit; null: of none.")
    generation: int = Field(description="Rises when the definition changes.")
    version: int = Field(description="Rises with every write; the ETag.")
    created_at: datetime = Field(description="When it was made.")
    updated_at: datetime = Field(description="When its definition or its desired state was last written.")


class OneQueryAnswer(QueryAnswer):
    """A query, and the same in SQL."""

    sql: str = Field(description="The statement that the definition stands for; carried out again it means the same.")
    statement: str | None = Field(
        description="The statement that made it, as it was written; null where JSON did, or has changed it since."
    )


class StoredQueryAnswer(QueryAnswer):
    """A query as it was stored."""

    warnings: list[WarningItem] = Field(description="What may surprise of this definition; empty where nothing does.")


class QueryPage(Answer):
    """A page of queries, by name."""

    items: list[QueryAnswer] = Field(description="Queries, by name.")
    next: str | None = Field(description="Cursor of the next page; null on the last.")


class DesiredStateBody(FewFields):
    """The desired state."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    state: DesiredState = Field(
        description="The desired state: `running`; `paused`: state kept at hand; `stopped`: resources released."
    )


class AcceptedAnswer(Answer):
    """A desired state that was stored; the status tells when the query has reached it."""

    name: str = Field(description="Name of the query.")
    desired_state: DesiredState = Field(description="The desired state.")
    state: QueryState = Field(description="What it is doing now.")
    generation: int = Field(description="Rises when the definition changes.")
    version: int = Field(description="Rises with every write; the ETag.")
    status: str = Field(description="Where to look.", examples=["/v1/queries/delays/status?wait_for=running"])
    warnings: list[WarningItem] = Field(description="`waiting_for_place`: the desired state waits for a driver.")


class Counter(Answer):
    """How often something happened at one input or operator since the query began with this state."""

    input: str = Field(description="Alias of the input, or name of the operator.", examples=["departures"])
    reason: str = Field(description="What happened, as a code.", examples=["late_joined"])
    count: int = Field(description="How often.")


class ProblemItem(Answer):
    """One fault of a definition."""

    pointer: str = Field(description="JSON pointer into the definition.", examples=["/joins/0/grace"])
    code: str = Field(
        description="Stable code; `GET /v1/errors/{code}` explains it.", examples=["grace_exceeds_history_retention"]
    )
    detail: str = Field(description="What is wrong and what to do about it.")
    type: str | None = Field(default=None, description="Where the code is explained, relative to the service.")


class QueryError(BaseModel):
    """What is wrong with a query that failed or is retried. Further fields come with later versions."""

    model_config = ConfigDict(extra="allow", frozen=True)

    code: str = Field(description="Stable code; `GET /v1/errors/{code}` explains it.", examples=["data_invalid"])
    detail: str = Field(description="What happened and what to do.")
    domain: Literal["user", "external", "internal"] | None = Field(default=None, description="Whose the fault is.")
    retryable: bool | None = Field(default=None, description="Whether the next launch may go better with nothing changed.")
    errors: list[ProblemItem] | None = Field(default=None, description="The faults of a definition that was refused.")


class RecordsAnswer(Answer):
    """Records of one partition of a stream, or of a derived stream as a whole.

    Each has ``$offset``, ``$event_time_ms`` and the stream's columns.

    One that came of a replayed late record also has ``$replayed``: true; one without a value ``$op``: ``delete``.
    """

    stream: str = Field(description="Name of the stream.")
    part: str | None = Field(description="The part of the stream whose records these are; null: its own log's.")
    parts: list[str] = Field(
        description="What queries have appended to the stream, each to be read with `part=`; `/changes` has all records together."
    )
    partition: int | None = Field(description="Null where a derived stream is read as a whole.")
    partition_count: int | None = Field(
        description="How many partitions the stream has, from 0; each is read on its own. Null where a derived stream is read as a whole."
    )
    records: list[dict[str, Any]] = Field(description="Records in offset order.")
    next_offset: int = Field(description="Where to go on.")
    end_offset: int = Field(description="Where the partition, or the whole, ends at present.")
    position: Position = Field(description="Feed, partition, next offset: what a derived stream includes; empty for a source.")
    stream_time_ms: int | None = Field(
        description="Stream time of its query as of the last commit, in milliseconds since 1970; null of a source, and before the first record."
    )
    committed_at: datetime | None = Field(
        description="When its query last committed; null of a source, and before the first commit."
    )
    stale: bool = Field(description="True while its query does not run; false of a source.")


class Health(Answer):
    """Alive."""

    status: Literal["ok"] = Field(description="Always `ok`: the process answers.")


class Readiness(Answer):
    """What the service needs, and whether it is there."""

    status: Literal["ready", "not_ready"] = Field(description="Always `ready` with status 200; what is not ready answers 503.")
    checks: dict[str, str] = Field(description="`database`, the `schema`'s version, `driver`: ready, starting, failing or none.")


class Version(Answer):
    """What runs here."""

    version: str = Field(description="Version of the service.")
    python: str = Field(description="Version of Python below it.")
    api: Literal["v1"] = Field(description="Version of the HTTP interface, as paths begin.")

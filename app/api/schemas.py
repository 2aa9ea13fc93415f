"""Bodies of requests and answers. Answers have no defaults: a client sees every field, always."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.domain.limiting import Limit
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


class RegisteredAnswer(RelationAnswer):
    """A stream or a table as it was registered."""

    warnings: list[WarningItem] = Field(description="What may surprise of this definition; empty where nothing does.")


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
    batch_id: int | None = Field(description="Its newest batch then; null: it had committed none, and the fork began anew.")
    committed_at: datetime | None = Field(description="When it had committed that.")


class QueryAnswer(Answer):
    """A query: its definition as stored and its wish."""

    name: str = Field(description="Name of the query.")
    definition: dict[str, Any] = Field(
        description="As stored, every default spelled out.", json_schema_extra=refers_to("QueryDefinition")
    )
    desired_state: DesiredState = Field(description="What is wished.")
    state: QueryState = Field(description="What it is doing now.")
    internal: bool = Field(description="It keeps the rows of a source with `materialize` and follows that table's definition.")
    fork_of: ForkOrigin | None = Field(description="Of which query it is a fork, and as of which commit; null: of none.")
    generation: int = Field(description="Rises when the definition changes.")
    version: int = Field(description="Rises with every write; the ETag.")
    created_at: datetime = Field(description="When it was made.")
    updated_at: datetime = Field(description="When its definition or its wish was last written.")


class OneQueryAnswer(QueryAnswer):
    """A query, and the same in SQL."""

    sql: str = Field(description="The statement that the definition stands for; carried out again it means the same.")
    statement: str | None = Field(description="The statement that made it, as it was written; null where JSON did.")


class StoredQueryAnswer(QueryAnswer):
    """A query as it was stored."""

    warnings: list[WarningItem] = Field(description="What may surprise of this definition; empty where nothing does.")


class QueryPage(Answer):
    """A page of queries, by name."""

    items: list[QueryAnswer] = Field(description="Queries, by name.")
    next: str | None = Field(description="Cursor of the next page; null on the last.")


class DesiredStateBody(FewFields):
    """The wish."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    state: DesiredState = Field(
        description="What is wished: `running`; `paused`: state kept at hand; `stopped`: resources released."
    )


class WishAnswer(Answer):
    """A wish that was noted; the status tells when it has come true."""

    name: str = Field(description="Name of the query.")
    desired_state: DesiredState = Field(description="What is wished.")
    state: QueryState = Field(description="What it is doing now.")
    generation: int = Field(description="Rises when the definition changes.")
    version: int = Field(description="Rises with every write; the ETag.")
    status: str = Field(description="Where to look.", examples=["/v1/queries/delays/status?wait_for=running"])
    warnings: list[WarningItem] = Field(description="`no_driver_has_room`: what is wished waits for a driver.")


class PartitionProgress(Answer):
    """How far one partition of one feed has been read."""

    partition: int = Field(description="Number of the partition, from 0.")
    next_offset: int = Field(description="The next record to read; everything before is in the result.")
    end_offset: int | None = Field(description="The feed's present end; null where only the driver can know (files).")
    lag: int | None = Field(description="Records between the two.")


class FeedProgress(Answer):
    """How far one feed has been read."""

    feed: str = Field(description="Where the records are, as positions call it.")
    relations: list[str] = Field(description="The query's relations that read it.")
    partitions: list[PartitionProgress] = Field(description="Each partition that has been read or has an end.")


class Counter(Answer):
    """How often something happened at one input or operator since the query began with this state."""

    input: str = Field(description="Alias of the input, or name of the operator.", examples=["departures"])
    reason: str = Field(description="What happened, as a code.", examples=["late_joined"])
    count: int = Field(description="How often.")


class Reason(Answer):
    """What keeps a query from what was wished, and what can be done about it."""

    code: str = Field(
        description="Stable code of the reason; of an error `GET /v1/errors/{code}` explains it.", examples=["no_driver_has_room"]
    )
    detail: str = Field(description="What is in the way, and what to do about it.")


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


class Carrier(Answer):
    """The streaming query of Spark that carries a query's batches."""

    kind: Literal["shared", "own", "trial"] = Field(
        description="`shared`: light queries share one. `own`: the query's work is large (a batch of 10,000 records, one that left records"
        " unread, or 15 % of a core over ten seconds); it shares again after 30 seconds with less than 5 % and no such batch. `trial`: it was"
        " at work when a worker died, and does its next batch alone."
    )
    moves: int = Field(description="How often it has changed carriers since its launch.")
    cpu_share: float | None = Field(
        description="What its batches took of one core over the ten seconds before the last commit: 0.15 is 15 %.",
        examples=[0.021],
    )
    largest_batch: int | None = Field(description="Records of its largest batch in these seconds.", examples=[412])
    max_rows: int | None = Field(
        description="Its batches are cut to about so many records, since larger ones emitted too much at once; null: they are not."
    )


class Shares(Answer):
    """Shares of the last ten seconds that a query's batches took, by what was done. All 0: it committed nothing meanwhile."""

    reading: float = Field(description="Its records were read, judged and shared out among its tasks.")
    tasks: float = Field(description="Its tasks worked.")
    commit: float = Field(description="Its results were written.")
    round: float = Field(
        description="Its carrier did something else before the query's next batch could begin: others' batches, and what each costs."
    )
    busiest_task: float | None = Field(
        description="Share of the busiest task in the work of all: with `tasks` of 4, 0.25 is even and 0.9 means that few keys have most"
        " records. Null where fewer than two had work."
    )


class DeliveryTrouble(Answer):
    """Why nothing is delivered."""

    code: str = Field(description="Stable code; `GET /v1/errors/{code}` explains it.", examples=["target_unavailable"])
    detail: str = Field(description="What happened.")
    cure: str = Field(description="What helps.")
    at: datetime | None = Field(description="When it was last found; null: it is so at this moment.")


class Delivery(Answer):
    """How far the query's results are delivered (`into.connector`)."""

    id: str = Field(description="What its target knows it by; another one begins where the target or the result changes.")
    type: str = Field(description="Of the target.", examples=["kafka"])
    state: Literal["delivering", "waiting", "stopped"] = Field(
        description="`delivering`: what comes is delivered. `waiting`: the target takes nothing now, or no driver is there; it is tried again"
        " by itself. `stopped`: trying again cannot help, or the query is stopped."
    )
    since: datetime = Field(description="When it came into this state.")
    reason: DeliveryTrouble | None = Field(description="Why it is not delivering; null: it is.")
    position: int = Field(description="Number of the result's row that is delivered next.")
    end_position: int = Field(description="Number behind the result's last row.")
    lag_rows: int = Field(description="Rows that are not delivered yet.", examples=[120])
    lag_ms: int | None = Field(
        description="By how much event time the target is behind the result; null: nothing was delivered yet."
    )
    delivered_rows: int = Field(description="Rows that were delivered since it began.")
    delivered_at: datetime | None = Field(description="When it last delivered something; null: not yet.")
    failures: int = Field(description="Attempts that failed since it began.")
    attempt: int = Field(description="Attempts that failed in a row.")
    next_attempt_at: datetime | None = Field(description="When it is tried again after a failure.")


class WaitingSpan(Answer):
    """Records or windows that wait, at times from ``from_ms`` to ``to_ms``, both inclusive."""

    from_ms: int = Field(description="The earliest time: of a record its event time, of a window its end.")
    to_ms: int = Field(description="The latest time.")
    at_least: int = Field(description="How many wait there at least.", examples=[3])
    at_most: int = Field(description="How many at most; the same where the number is exact.", examples=[3])


class TaskStatus(Answer):
    """An operator in one task: where its clock stands, and what waits in it."""

    operator: str = Field(description="Name of the operator.", examples=["w"])
    task: int = Field(description="Number of the task, from 0.")
    stream_time_ms: int | None = Field(description="Stream time of this task; null before its first record.")
    buffered: int = Field(description="Records that wait inside.")
    waiting: list[WaitingSpan] = Field(description="What waits, by time, in at most 16 spans; empty where nothing does.")


class StatusAnswer(Answer):
    """What the service knows of a query."""

    name: str = Field(description="Name of the query.")
    state: QueryState = Field(description="What it is doing now.")
    phase: str | None = Field(
        description="What it does inside its state. `starting`: `queued`, `fencing`, `planning`, `restoring`; `running`, until the first"
        " commit: `preparing` (Spark sets up the query's processes), `first_batch` (the first batch is under way)."
    )
    desired_state: DesiredState = Field(description="What is wished.")
    conditions: list[str] = Field(
        description="`unreachable`: its driver has not been heard of; `unplaced`: it wants a driver and has none; `stale`: it does not"
        " follow its inputs now; `waits_for_producer`: it runs, and leaves records unread until the query that writes another of its inputs"
        " has come as far in event time."
    )
    reason: Reason | None = Field(
        description="Why it is not what was wished: its error, that no driver is there or has room, or which query it waits for, how far"
        " that is behind and what can be done (`waits_for_producer`)."
    )
    state_since: datetime = Field(description="When it came into this state.")
    generation: int = Field(description="Rises when the definition changes.")
    observed_generation: int = Field(description="The generation the driver works on; 0 before the first start.")
    epoch: int = Field(description="Number of the launch.")
    attempt: int = Field(description="Failed launches in a row; 0 once it has run well for a while.")
    next_attempt_at: datetime | None = Field(description="When it is launched again after a failure; null: no launch is due.")
    heartbeat_at: datetime | None = Field(description="When its driver was last heard of; null: no driver has had it.")
    error: QueryError | None = Field(description="Why it failed or is being retried.")
    batch_id: int | None = Field(description="Number of the last committed batch; null before the first.")
    committed_at: datetime | None = Field(description="When it last committed; null before the first commit.")
    stream_time_ms: int | None = Field(
        description="Stream time as of the last commit: milliseconds since 1970; null before the first record."
    )
    progress: list[FeedProgress] = Field(description="How far each feed that it reads has been read.")
    read_rows: int = Field(description="Records read since the query began with this state.", examples=[27004])
    emitted_rows: int = Field(description="Records or changes of rows written since then.", examples=[1743])
    clocks: dict[str, int | None] = Field(description="Operator to stream time, the smallest over its tasks.")
    buffered: dict[str, int] = Field(description="Operator to records that wait inside it.")
    tasks: list[TaskStatus] | None = Field(
        description="The same for each task, as of the last commit; null unless `tasks=true` asks for it."
    )
    counters: list[Counter] = Field(description="What was counted at its inputs and operators, by reason.")
    carrier: Carrier | None = Field(description="What carried its last batch, and why; null before the first.")
    limited_by: Limit = Field(
        description="What limits the rate at which it works. The first that is true: `paused`, `not_running`: its state; `upstream`: it"
        " leaves records unread until a query that writes another of its inputs has come as far in event time; `input`: it waits for"
        " records for a fifth of the time or more, so it keeps up; else the greatest of `shares`: `reading`, `tasks` (more `tasks` and cores"
        " help, unless `busiest_task` is near 1), `commit` (the database), `round` (its neighbours; more drivers help)."
    )
    shares: Shares = Field(description="What its time goes into.")
    delivery: Delivery | None = Field(
        description="How far its results are delivered elsewhere; null: they are not (`into.connector`)."
    )
    restorable_since: datetime | None = Field(
        description="A database put back from a dump made since then finds all of its state; null: from any dump. What older ones name is"
        " removed (`SLACKWATER_STATE_RETENTION`, `SLACKWATER_STATE_RETAINED_BYTES`)."
    )


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

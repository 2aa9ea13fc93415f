"""What `GET /v1/queries/{name}/status` answers with: what a query does, how far it and its delivery have come, and what limits it."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from app.catalog.deliveries.rules import DeliveryState
from app.http.schemas import Answer, Counter, DesiredState, QueryError, QueryState
from app.status.limiting import Limit


class PartitionProgress(Answer):
    """How far one partition of one feed has been read."""

    partition: int = Field(description="Number of the partition, from 0.")
    next_offset: int = Field(description="The next record to read; everything before is in the result.")
    end_offset: int | None = Field(description="The feed's present end; null where only the driver can know (files).")
    lag: int | None = Field(description="Records between the two.")
    begins_at: int | None = Field(
        description="Where reading began, because retention had removed what the query was to begin with: `records_lost` in `counters` says how"
        " many records that were. Null: nothing was gone."
    )
    open_records: int = Field(
        description="Of a topic: offsets behind `end_offset` that transactions hold back which have not ended, as found at most ten seconds"
        " ago. They are read when these end."
    )
    open_since: datetime | None = Field(
        description="Since when `end_offset` has stood still for such a transaction; null: for none. After a minute the status has a"
        " `reason` for it."
    )


class FeedProgress(Answer):
    """How far one feed has been read."""

    feed: str = Field(description="Where the records are, as positions call it.")
    relations: list[str] = Field(description="The query's relations that read it.")
    is_discovered: bool = Field(
        description="Whether anything is known of its partitions: topics and files are looked at when a query first reads them, and until"
        " then nothing counts as unread."
    )
    partitions: list[PartitionProgress] = Field(description="Each partition that has been read or has an end.")


class Reason(Answer):
    """What keeps a query from its desired state, and what can be done about it."""

    code: str = Field(
        description="Stable code of the reason; of an error `GET /v1/errors/{code}` explains it.", examples=["waiting_for_place"]
    )
    detail: str = Field(description="What is in the way, and what to do about it.")


class Execution(Answer):
    """The execution slot that runs a query's batches."""

    mode: Literal["shared", "dedicated", "isolated"] = Field(
        description="`shared`: queries with low load share a slot. `dedicated`: the query's load is high (a batch of 10,000 records, one that"
        " left records unread, or 15 % of a core over ten seconds); it shares again after 30 seconds with less than 5 % and no such batch."
        " `isolated`: it was at work when a worker died, and does its next batch alone."
    )
    is_waiting: bool = Field(
        description="Its load is high, and it shares a slot all the same: the driver has as many dedicated slots as it takes (eight, or two"
        " for each of its cores). It gets the next one that becomes free; meanwhile it gets a part of each scheduling cycle."
    )
    moves: int = Field(description="How often it has changed slots since its launch.")
    cpu_share: float | None = Field(
        description="What its batches took of one core over the ten seconds before the last commit: 0.15 is 15 %.",
        examples=[0.021],
    )
    largest_batch: int | None = Field(description="Records of its largest batch in these seconds.", examples=[412])
    max_rows: int | None = Field(
        description="Its batches are cut to about so many records, since larger ones emitted too much at once; null: they are not."
    )
    deferred: int = Field(
        description="How many of its batches since its launch were deferred to the next scheduling cycle of its slot, since earlier batches"
        " had emitted as much as a cycle may (64 MiB). A large number means that queries which share its slot emit much."
    )


class Shares(Answer):
    """Shares of the last ten seconds that a query's batches took, by what was done. All 0: it committed nothing meanwhile."""

    reading: float = Field(description="Its records were read, judged and shared out among its tasks.")
    tasks: float = Field(description="Its tasks worked.")
    commit: float = Field(description="Its results were written.")
    other_queries: float = Field(
        description="Its slot did something else before the query's next batch could begin: others' batches, and what each costs."
    )
    busiest_task: float | None = Field(
        description="Share of the busiest task in the work of all: with `tasks` of 4, 0.25 is even and 0.9 means that few keys have most"
        " records. Null where fewer than two had work."
    )


class FunctionShare(Answer):
    """A Python function that a query calls."""

    name: str = Field(description="Name of the function.", examples=["score"])
    share: float = Field(
        description="Share of the ten seconds before the last commit that the query waited for it; part of `tasks` or `reading` in"
        " `shares`.",
        examples=[0.62],
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
    state: DeliveryState = Field(
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
    desired_state: DesiredState = Field(description="The desired state.")
    conditions: list[str] = Field(
        description="`unreachable`: its driver has not been heard of; `unplaced`: it wants a driver and has none; `stale`: it does not"
        " follow its inputs now; `waits_for_producer`: it runs, and leaves records unread until the query that writes another of its inputs"
        " has come as far in event time; `waits_for_transaction`: it runs, and a transaction in a topic that it reads has not ended for a"
        " minute; `slow_function`: it runs and does not keep up, and one Python function takes more than half of the time that it works."
    )
    reason: Reason | None = Field(
        description="Why it is not in its desired state: its error, that no driver is there or has room, or which query or transaction it waits"
        " for, since when or how far that is behind, and what can be done (`waits_for_producer`, `waits_for_transaction`); or which Python"
        " function takes most of its time (`slow_function`)."
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
    execution: Execution | None = Field(description="Which kind of slot ran its last batch, and why; null before the first.")
    limited_by: Limit = Field(
        description="What limits the rate at which it works. The first that is true: `paused`, `not_running`: its state; `upstream`: it"
        " leaves records unread until a query that writes another of its inputs has come as far in event time; `unmeasured`: it has"
        " committed nothing yet, or has worked at one batch for more than ten seconds; `input`: it waits for records"
        " for a fifth of the time or more, so it keeps up; else the greatest of `shares`: `reading`, `tasks` (more `tasks` and cores"
        " help, unless `busiest_task` is near 1), `commit` (the database), `round` (its neighbours; more drivers help)."
    )
    shares: Shares = Field(description="What its time goes into.")
    functions: list[FunctionShare] = Field(
        description="The Python functions that it called in these seconds, the slowest first; empty where it called none."
    )
    delivery: Delivery | None = Field(
        description="How far its results are delivered elsewhere; null: they are not (`into.connector`)."
    )
    restorable_since: datetime | None = Field(
        description="A database put back from a dump made since then finds all of its state; null: from any dump. What older ones name is"
        " removed (`SLACKWATER_STATE_RETENTION`, `SLACKWATER_STATE_RETAINED_BYTES`)."
    )

"""Answers of `GET /v1/queries/{name}/status`: what a query does, the progress of it and its delivery, and what limits it."""

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
    end_offset: int | None = Field(description="The feed's current end; null if only the driver can know it (files).")
    lag: int | None = Field(description="Records between the two.")
    begins_at: int | None = Field(
        description="Where reading began, if retention had removed the first records of the query: `records_lost` in `counters` has the"
        " number of lost records. Null: no record was lost."
    )
    open_records: int = Field(
        description="For a topic: offsets behind `end_offset` that open transactions hold back, as of at most ten seconds"
        " ago. The query reads them when these transactions end."
    )
    open_since: datetime | None = Field(
        description="Time since which an open transaction holds `end_offset` back; null: none does. After a minute the status has a"
        " `reason` for it."
    )


class FeedProgress(Answer):
    """Progress of a query in one feed."""

    feed: str = Field(description="The feed, by its name in positions.")
    relations: list[str] = Field(description="The query's relations that read it.")
    is_discovered: bool = Field(
        description="Whether its partitions are known. The driver discovers topics and files when a query first reads them; until"
        " then nothing counts as unread."
    )
    partitions: list[PartitionProgress] = Field(description="Each partition that the query has read or whose end is known.")


class Reason(Answer):
    """Why a query is not in its desired state, and what can be done about it."""

    code: str = Field(
        description="Stable code of the reason; `GET /v1/errors/{code}` explains error codes.", examples=["waiting_for_place"]
    )
    detail: str = Field(description="The obstacle, and what to do about it.")


class Execution(Answer):
    """The execution slot that runs a query's batches."""

    mode: Literal["shared", "dedicated", "isolated"] = Field(
        description="`shared`: queries with low load share a slot. `dedicated`: the query's load is high (a batch of 10,000 records, one that"
        " left records unread, or 15 % of a core over ten seconds); it shares again after 30 seconds with less than 5 % and no such batch."
        " `isolated`: it was at work when a worker died, and runs its next batch alone."
    )
    is_waiting: bool = Field(
        description="Its load is high, but it shares a slot: all dedicated slots of the driver are in use (eight, or two"
        " for each core). It gets the next free one; until then it gets a part of each scheduling cycle."
    )
    moves: int = Field(description="Number of moves between slots since its launch.")
    cpu_share: float | None = Field(
        description="CPU time of its batches as a share of one core, over the ten seconds before the last commit: 0.15 is 15 %.",
        examples=[0.021],
    )
    largest_batch: int | None = Field(description="Records of its largest batch in these ten seconds.", examples=[412])
    max_rows: int | None = Field(
        description="Limit of records in a batch, because larger batches emitted too much at once; null: no limit."
    )
    deferred: int = Field(
        description="Number of its batches since its launch that were deferred to the next scheduling cycle of its slot, because earlier"
        " batches had emitted the limit of a cycle (64 MiB). A large number means that queries in its slot emit much."
    )


class Shares(Answer):
    """Shares of the last ten seconds that a query's batches used, by kind of work. All 0: there was no commit in this time."""

    reading: float = Field(description="Read its records, validate them, and distribute them to its tasks.")
    tasks: float = Field(description="Work of its tasks.")
    commit: float = Field(description="Write its results.")
    other_queries: float = Field(
        description="Its slot did other work before the query's next batch could begin: batches of other queries, and overhead."
    )
    busiest_task: float | None = Field(
        description="Share of the busiest task in the work of all tasks: with 4 tasks, 0.25 is even, and 0.9 means that few keys have most"
        " records. Null if fewer than two tasks had work."
    )


class FunctionShare(Answer):
    """A Python function that a query calls."""

    name: str = Field(description="Name of the function.", examples=["score"])
    share: float = Field(
        description="Share of the ten seconds before the last commit that the query waited for the function; part of `tasks` or `reading` in"
        " `shares`.",
        examples=[0.62],
    )


class DeliveryTrouble(Answer):
    """Why results are not delivered."""

    code: str = Field(description="Stable code; `GET /v1/errors/{code}` explains it.", examples=["target_unavailable"])
    detail: str = Field(description="What happened.")
    cure: str = Field(description="What helps.")
    at: datetime | None = Field(description="Last time of this failure; null: it is the case now.")


class Delivery(Answer):
    """Progress of the delivery of a query's results (`into.connector`)."""

    id: str = Field(description="Id of the delivery in the target; a new one begins if the target or the result changes.")
    type: str = Field(description="Of the target.", examples=["kafka"])
    state: DeliveryState = Field(
        description="`delivering`: new rows are delivered. `waiting`: the target accepts nothing now, or there is no driver; the service"
        " retries. `stopped`: a retry cannot help, or the query is stopped."
    )
    since: datetime = Field(description="Start of this state.")
    reason: DeliveryTrouble | None = Field(description="Why it is not delivering; null: it is.")
    position: int = Field(description="Number of the next row to deliver.")
    end_position: int = Field(description="Number after the result's last row.")
    lag_rows: int = Field(description="Rows that are not delivered yet.", examples=[120])
    lag_ms: int | None = Field(description="Event time by which the target is behind the result; null: nothing is delivered yet.")
    delivered_rows: int = Field(description="Rows delivered since the delivery began.")
    delivered_at: datetime | None = Field(description="Time of the last delivery; null: not yet.")
    failures: int = Field(description="Failed attempts since the delivery began.")
    attempt: int = Field(description="Failed attempts in a row.")
    next_attempt_at: datetime | None = Field(description="Time of the next attempt after a failure.")


class WaitingSpan(Answer):
    """Records or windows that wait, at times from ``from_ms`` to ``to_ms``, both inclusive."""

    from_ms: int = Field(description="The earliest time: the event time of a record, or the end of a window.")
    to_ms: int = Field(description="The latest time.")
    at_least: int = Field(description="Lower bound of their number.", examples=[3])
    at_most: int = Field(description="Upper bound; the same if the number is exact.", examples=[3])


class TaskStatus(Answer):
    """What waits in one task of an operator. Its time is that of all tasks (`clocks`)."""

    operator: str = Field(description="Name of the operator.", examples=["w"])
    task: int = Field(description="Number of the task, from 0.")
    buffered: int = Field(description="Records that wait inside.")
    waiting: list[WaitingSpan] = Field(description="What waits, by time, in at most 16 spans; empty if nothing waits.")


class SlowestPartition(Answer):
    """The partition that holds a query's stream time back (`clock: slowest`)."""

    feed: str = Field(description="Its feed, by its name in positions.")
    relations: list[str] = Field(description="The query's relations that read it.")
    partition: int = Field(description="Its number; 0 of a derived relation, which counts as one partition.")
    stream_time_ms: int = Field(description="The greatest event time read of it.")
    behind_ms: int = Field(description="How far that is behind the partition that is furthest.")
    since: datetime = Field(description="Time since which it is the slowest one, by the clock of the service.")


class StatusAnswer(Answer):
    """The status of a query."""

    name: str = Field(description="Name of the query.")
    state: QueryState = Field(description="Current state.")
    phase: str | None = Field(
        description="Step inside its state. `starting`: `queued`, `fencing`, `planning`, `restoring`; `running`, until the first"
        " commit: `preparing` (Spark sets up the query's processes), `first_batch` (the first batch is under way)."
    )
    desired_state: DesiredState = Field(description="The desired state.")
    conditions: list[str] = Field(
        description="`unreachable`: its driver sends no heartbeat; `unplaced`: it needs a driver and has none; `stale`: it does not"
        " follow its inputs now; `waits_for_producer`: it runs, and leaves records unread until the query that writes another of its inputs"
        " has reached the same event time; `waits_for_transaction`: it runs, and a transaction in a topic that it reads is open for more than"
        " a minute; `slow_function`: it runs and does not keep up, and one Python function takes more than half of its working time."
    )
    reason: Reason | None = Field(
        description="Why it is not in its desired state: its error; no driver, or no driver with room; or the query or transaction that it"
        " waits for, with the delay and what can be done (`waits_for_producer`, `waits_for_transaction`); or the Python"
        " function that takes most of its time (`slow_function`)."
    )
    state_since: datetime = Field(description="Start of this state.")
    generation: int = Field(description="Rises when the definition changes.")
    observed_generation: int = Field(description="The generation that the driver runs; 0 before the first start.")
    epoch: int = Field(description="Number of the launch.")
    attempt: int = Field(description="Failed launches in a row; 0 after it has run without failure for a while.")
    next_attempt_at: datetime | None = Field(description="Time of the next launch after a failure; null: no launch is due.")
    heartbeat_at: datetime | None = Field(description="Last heartbeat of its driver; null: no driver has run it.")
    error: QueryError | None = Field(description="Why it failed, or why it is retried.")
    batch_id: int | None = Field(description="Number of the last committed batch; null before the first.")
    committed_at: datetime | None = Field(description="Time of its last commit; null before the first commit.")
    stream_time_ms: int | None = Field(
        description="Stream time as of the last commit: milliseconds since 1970; null before the first record."
    )
    progress: list[FeedProgress] = Field(description="Progress in each feed that it reads.")
    read_rows: int = Field(description="Records read since the query began with this state.", examples=[27004])
    emitted_rows: int = Field(description="Records or changes of rows written in the same time.", examples=[1743])
    clocks: dict[str, int] = Field(
        description="Operator to the stream time before it, one for all tasks; `<operator>.table`: the time of its table. Behind an operator"
        " that waits, time is as much less as it waits (`waits_ms` of the plan)."
    )
    slowest_partition: SlowestPartition | None = Field(
        description="With `clock: slowest`, the partition that holds stream time back, as of the last commit; null: none is behind another,"
        " or the query's clock is `fastest`. A partition that has been at its end for `idle.after` does not count."
    )
    buffered: dict[str, int] = Field(description="Operator to number of records that wait in it.")
    tasks: list[TaskStatus] | None = Field(
        description="What waits in each task, as of the last commit; null unless `tasks=true` asks for it."
    )
    counters: list[Counter] = Field(description="Counts of its inputs and operators, by reason.")
    execution: Execution | None = Field(description="Kind of slot that ran its last batch, and why; null before the first batch.")
    limited_by: Limit = Field(
        description="What limits its rate. The first that applies: `paused`, `not_running`: its state; `upstream`: it"
        " leaves records unread until the query that writes another of its inputs has reached the same event time; `unmeasured`: it has"
        " no commit yet, or has worked at one batch for more than ten seconds; `input`: it waits for records"
        " for a fifth of the time or more, so it keeps up; otherwise the greatest of `shares`: `reading`, `tasks` (more `tasks` and cores"
        " help, unless `busiest_task` is near 1), `commit` (the database), `other_queries` (more drivers help)."
    )
    shares: Shares = Field(description="How its time is used.")
    functions: list[FunctionShare] = Field(
        description="The Python functions that it called in the last ten seconds, the slowest first; empty if it called none."
    )
    delivery: Delivery | None = Field(
        description="Progress of the delivery of its results; null: they are not delivered (`into.connector`)."
    )
    restorable_since: datetime | None = Field(
        description="A database restored from a dump since this time finds all state of the query; null: from any dump. State of older dumps"
        " is removed (`SLACKWATER_STATE_RETENTION`, `SLACKWATER_STATE_RETAINED_BYTES`)."
    )

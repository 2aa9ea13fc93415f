"""The plan: what one query does, stage by stage, as frozen values.

Made from a definition and a catalog by ``engine.plan.build``; read by ``engine.core`` (to build tasks), by the connectors (what
to read, how to key it) and by the sink (what to write). Pure data: it pickles, and ``state_fingerprint`` says whether kept state
fits it.

Column names inside a stage are qualified: ``<alias>.<column>`` (``departures.origin``, ``w.temp``), until a ``Projection`` or a
``WindowAggregation`` gives the output its own names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from engine.definition.relations import EventTimeUnit
from engine.definition.types import Schema


@dataclass(frozen=True, slots=True)
class Feed:
    """Where an input's records come from. Inputs with an equal ``name`` share one order (T2).

    Attributes:
        name: identity, such as ``log:departures`` or ``files:ndjson:/data/bids``.
        type: the connector.
        log_feed: name of the feed in ``log.feed``.
        path: directory of a files feed, else None.
        format: ndjson, csv or parquet for files, else None.
        is_derived: a query writes it: its records are numbered across its partitions (P1).
    """

    name: str
    type: Literal["log", "files"]
    log_feed: str
    path: str | None = None
    format: Literal["ndjson", "csv", "parquet"] | None = None
    is_derived: bool = False


@dataclass(frozen=True, slots=True)
class RelationSchema:
    """A relation as a reader needs it.

    Attributes:
        name: its public name.
        kind: stream or table.
        columns: every declared column (unqualified), in declared order.
        key: key columns; may be empty for a stream.
        event_time: the column that holds the event time, or None: the record's own (log) or arrival time.
        event_time_format: strptime format where that column is a string, else None.
        where: SQL condition a record of a shared feed must meet to belong to the relation, else None.
        max_future_skew_ms: T7's bound, None = off.
        history_retention_ms: R of a versioned table, else None.
        is_stop_on_bad_record: ``on_bad_record: stop``.
        conflict: which put of a key an unversioned table keeps (V7): the last by arrival, or the one with the latest event time.
        event_time_unit: what an event-time column of whole numbers counts since 1970.
    """

    name: str
    kind: Literal["stream", "table"]
    columns: Schema
    key: tuple[str, ...]
    event_time: str | None
    event_time_format: str | None
    where: str | None
    max_future_skew_ms: int | None
    history_retention_ms: int | None
    is_stop_on_bad_record: bool = False
    conflict: Literal["latest_arrival", "latest_event_time"] = "latest_arrival"
    event_time_unit: EventTimeUnit = "ms"


@dataclass(frozen=True, slots=True)
class Input:
    """One input. ``index`` is the declared index: a stage's tables before its streams (T2).

    Attributes:
        alias: prefix of its columns inside the plan.
        relation: the relation it reads.
        feed: where from.
        columns: the unqualified columns the query needs, key columns included (projection at the source).
        hash_key: unqualified columns whose hash chooses the task; equal values of the join or group key meet in one task.
        where: ``from.where``: a condition over unqualified columns, applied before anything else, else None.
        start: where reading begins: earliest, latest, or an event time in ms.
        stage: the stage whose operators read it; its packets pass earlier stages untouched.
    """

    index: int
    alias: str
    relation: RelationSchema
    feed: Feed
    columns: tuple[str, ...]
    hash_key: tuple[str, ...]
    where: str | None = None
    start: Literal["earliest", "latest"] | int = "earliest"
    stage: int = 0


@dataclass(frozen=True, slots=True)
class Filter:
    """Keep a stream's rows for which ``condition`` (over qualified columns) is true."""

    condition: str


@dataclass(frozen=True, slots=True)
class TableFilter:
    """F1: a filter over a table's changes. A row that fails becomes a delete, where the result had one.

    Attributes:
        name: names the operator in clocks, counters and state.
        condition: over qualified columns.
        key: the table's qualified key columns.
        history_retention_ms: R of a versioned table, or of an unversioned one's versioned result, else None.
        is_result_versioned: False: the result of a versioned table is unversioned: V1 is judged, then the latest by arrival counts.
        tells_every_delete: another operator follows: deletes go on also where the result had no row, for a row that comes later with
            an earlier time ends there.
    """

    name: str
    condition: str
    key: tuple[str, ...]
    history_retention_ms: int | None
    is_result_versioned: bool = True
    tells_every_delete: bool = False


@dataclass(frozen=True, slots=True)
class Hold:
    """J9: a released record waits on for the table's progress.

    Attributes:
        until: ``table_time``: every partition of the table was read up to the record's event time + slack; ``caught_up``: or to
            its end.
        at_most_ms: longest wait, by wall clock, since the record was buffered.
        max_rows: more than this are not held: the oldest are let go.
    """

    until: Literal["table_time", "caught_up"]
    slack_ms: int
    at_most_ms: int
    max_rows: int


@dataclass(frozen=True, slots=True)
class StreamTableJoin:
    """J1–J9, J11. Reads the stage's running stream and the table input ``table_index``.

    Attributes:
        name: alias of the table; also names the operator in clocks, counters and state.
        type: inner or left.
        table_index: ``Input.index`` of the table.
        stream_key: qualified columns of the stream side that equal the table's key, in the key's order.
        table_key: qualified key columns of the table.
        history_retention_ms: R, or None for an unversioned table.
        grace_ms: None = looked up on arrival (J2); 0 and more = J3.
        late: what happens to a late stream record; only judged when ``grace_ms`` is not None.
        expired: what a left join does when it meets expired history.
        table_columns: qualified table columns carried to the output. Joining also adds ``<name>.$match`` (string).
        hold: the further wait on the table's progress, or None.
    """

    name: str
    type: Literal["inner", "left"]
    table_index: int
    stream_key: tuple[str, ...]
    table_key: tuple[str, ...]
    history_retention_ms: int | None
    grace_ms: int | None
    late: Literal["join", "drop", "divert"]
    expired: Literal["null", "drop", "divert"]
    table_columns: tuple[str, ...]
    hold: Hold | None = None


@dataclass(frozen=True, slots=True)
class TableTableJoin:
    """TT1–TT6. Both sides have the same key. The running table is the left side, the table input ``table_index`` the right one.

    Attributes:
        name: alias of the right table; also names the operator in clocks, counters and state.
        left_key: qualified key columns of the running table.
        right_key: qualified key columns of the right table, in the same order.
        key: columns that hold the key of a result row, in the same order (``engine.plan.table_joins``).
        left_retention_ms: R of the left side, None where it is unversioned.
        right_retention_ms: the same of the right side.
        history: ``complete`` (TT6) only with both sides versioned.
        left_columns: qualified columns of the left side in the output.
        right_columns: the same of the right side.
        is_result_versioned: the query's result is a versioned table: a remembered tombstone counts for a result's time (TT3).

    The output has the left side's columns, then the right side's, then those of ``key`` that are of neither; those of an absent side
    are null. Filled in every row and every delete are the columns of ``key``; in a delete no others.
    """

    name: str
    type: Literal["inner", "left", "right", "outer"]
    table_index: int
    left_key: tuple[str, ...]
    right_key: tuple[str, ...]
    key: tuple[str, ...]
    left_retention_ms: int | None
    right_retention_ms: int | None
    history: Literal["latest", "complete"]
    left_columns: tuple[str, ...]
    right_columns: tuple[str, ...]
    is_result_versioned: bool = False


@dataclass(frozen=True, slots=True)
class ForeignKeySubscription:
    """FK1–FK3, the first of three steps, in tasks by the left table's key: what each change of a left row means for foreign keys.

    Attributes:
        name: alias of the right table; names the operator in clocks, counters and state.
        key: the left table's qualified key columns.
        foreign_key: one SQL expression over the left columns for each key column of the right table; null in one: no foreign key.
        history_retention_ms: R of the left side, None where it is unversioned.
        left_columns: qualified columns that go on.
    """

    name: str
    type: Literal["inner", "left"]
    key: tuple[str, ...]
    foreign_key: tuple[str, ...]
    history_retention_ms: int | None
    left_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ForeignKeyLookup:
    """The second step, in tasks by foreign key: holds the subscriptions and the right table, answers for each left row concerned.

    Attributes:
        table_index: ``Input.index`` of the right table.
        key: as of the subscription.
        right_key: qualified key columns of the right table.
        right_retention_ms: R of the right side, None where it is unversioned.
        left_columns: as of the subscription.
        right_columns: qualified columns of the right side in the output.
    """

    name: str
    type: Literal["inner", "left"]
    table_index: int
    key: tuple[str, ...]
    right_key: tuple[str, ...]
    right_retention_ms: int | None
    left_columns: tuple[str, ...]
    right_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ForeignKeyResult:
    """The third step, in tasks by the left key again: drops answers that a newer left row made void, and deletes of nothing.

    Attributes:
        key: as of the subscription.
        columns: qualified columns of the result, the left side's and the right side's.
    """

    name: str
    type: Literal["inner", "left"]
    key: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StreamStreamJoin:
    """Two streams whose records meet when their keys are equal and their event times near each other.

    A pair meets when ``left.ts - before <= right.ts <= left.ts + after``. The running stream is the left side.

    Attributes:
        name: alias of the other stream; names the operator in clocks, counters and state.
        type: which side's records come with nulls where they have no match.
        stream_index: ``Input.index`` of the right side.
        left_key: qualified columns of the left side that equal the right ones.
        right_key: qualified columns of the right side.
        right_columns: qualified right columns in the output; all of the left side's are.
        is_eager: records come with nulls at once, and not once their time range has closed (SS5). Then the output ends with
            ``<name>.$state`` (string: preliminary, final).
    """

    name: str
    type: Literal["inner", "left", "outer"]
    stream_index: int
    left_key: tuple[str, ...]
    right_key: tuple[str, ...]
    before_ms: int
    after_ms: int
    grace_ms: int
    right_columns: tuple[str, ...]
    is_eager: bool = False

    @property
    def state_column(self) -> str:
        """The column that marks the rows of an eager join."""
        return f"{self.name}.$state"


AggregateFunction = Literal[
    "count", "count_distinct", "sum", "avg", "min", "max", "stddev", "variance", "first", "last", "first_by_arrival", "last_by_arrival",
    "collect_list", "collect_set", "top_k", "histogram", "concat", "trace",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class AggregateColumn:
    """One aggregate of a group.

    Attributes:
        name: output column.
        function: which aggregate. ``concat`` (texts in arrival order) and ``trace`` (what was added and subtracted) serve the
            conformance corpora.
        argument: SQL scalar expression over qualified columns, None for ``count(*)``.
        limit: k of ``top_k``; at how many values the others are full that grow with their group, None: ``engine.definition.limits``.
    """

    name: str
    function: AggregateFunction
    argument: str | None
    limit: int | None = None


Emit = Literal["changes", "final", "corrections"]
"""Every change; each closed window once; or S6: a first result at the window's end, then corrections, then the final one."""


@dataclass(frozen=True, slots=True)
class WindowAggregation:
    """W1, W2, W5–W7: tumbling is hopping with ``advance_ms == size_ms``.

    Attributes:
        name: names the operator in clocks, counters and state.
        group: (output column, qualified source column) pairs.
        emit: when results are shown.
        having: SQL condition over the output columns, else None.
        is_folded: of ``changes`` only the last one per key of a batch has to be emitted (``engine.plan.folding``).

    Output columns of every windowed aggregation: the group's, ``window_start`` and ``window_end`` (timestamp), the aggregates', and
    with ``corrections`` also ``$state`` (string: preliminary, correction, final).
    """

    name: str
    group: tuple[tuple[str, str], ...]
    size_ms: int
    advance_ms: int
    grace_ms: int
    aggregates: tuple[AggregateColumn, ...]
    emit: Emit
    having: str | None = None
    is_folded: bool = False


@dataclass(frozen=True, slots=True)
class SessionAggregation:
    """W1, W3, W5–W7: sessions of records at most ``gap_ms`` apart; bounds are inclusive. See ``WindowAggregation``."""

    name: str
    group: tuple[tuple[str, str], ...]
    gap_ms: int
    grace_ms: int
    aggregates: tuple[AggregateColumn, ...]
    emit: Emit
    having: str | None = None
    is_folded: bool = False


@dataclass(frozen=True, slots=True)
class SlidingAggregation:
    """W1, W4–W7: windows of ``difference_ms`` that slide with the records; bounds are inclusive. See ``WindowAggregation``."""

    name: str
    group: tuple[tuple[str, str], ...]
    difference_ms: int
    grace_ms: int
    aggregates: tuple[AggregateColumn, ...]
    emit: Emit
    having: str | None = None
    is_folded: bool = False


@dataclass(frozen=True, slots=True)
class RunningAggregation:
    """A3: one result per group of a stream, without a window; a change per record.

    Attributes:
        having: a group that stops matching becomes a delete, where it was shown before.
        is_folded: see ``WindowAggregation``.

    Output columns: the group's, the aggregates'.
    """

    name: str
    group: tuple[tuple[str, str], ...]
    aggregates: tuple[AggregateColumn, ...]
    having: str | None = None
    is_folded: bool = False


@dataclass(frozen=True, slots=True)
class TableRegrouping:
    """A1, the first of two steps, in tasks by the table's key: the old and the new row behind each change.

    Attributes:
        key: the table's qualified key columns.
        history_retention_ms: R of a versioned table, else None.
        group: qualified columns of the groups; a null in one: the row is not counted.
        columns: qualified columns that the aggregates read.
    """

    name: str
    key: tuple[str, ...]
    history_retention_ms: int | None
    group: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableAggregation:
    """A1, A2, the second step, in tasks by group: subtracts old rows, adds new ones. See ``RunningAggregation``."""

    name: str
    group: tuple[tuple[str, str], ...]
    aggregates: tuple[AggregateColumn, ...]
    having: str | None = None
    is_folded: bool = False


@dataclass(frozen=True, slots=True)
class SuppressBuffer:
    """S4: bounds of a suppress buffer, and what happens when one is passed.

    Attributes:
        max_rows: entries, None: no bound.
        max_bytes: Arrow-encoded key and value bytes, None: no bound.
    """

    max_rows: int | None
    max_bytes: int | None
    when_full: Literal["emit_early", "stop"]


@dataclass(frozen=True, slots=True)
class WindowClosing:
    """When a window's row can no longer change (W5): the stream time that made its changes is at its end plus ``delay_ms``.

    Attributes:
        end: the key column (timestamp) that holds the window's end.
    """

    end: str
    delay_ms: int


@dataclass(frozen=True, slots=True)
class TimeLimitSuppression:
    """S1: holds a table's changes back by event time. Columns pass unchanged.

    Attributes:
        key: columns of the table's key, window bounds included.
        limit_ms: d.
        buffer: None: no bound.
        closing: of a windowed table: when a key may be forgotten; None: no key closes.
    """

    name: str
    key: tuple[str, ...]
    limit_ms: int
    buffer: SuppressBuffer | None
    closing: WindowClosing | None = None


@dataclass(frozen=True, slots=True)
class WallClockSuppression:
    """S2 (KIP-424): holds a table's changes back by wall clock. See ``TimeLimitSuppression``.

    Attributes:
        is_event_driven: the KIP to the letter: looks at the clock only when records arrive.
    """

    name: str
    key: tuple[str, ...]
    limit_ms: int
    buffer: SuppressBuffer | None
    is_event_driven: bool
    closing: WindowClosing | None = None


@dataclass(frozen=True, slots=True)
class Projection:
    """The ``select``: (output column, SQL scalar expression over the columns before it) pairs; or what a step makes first.

    Attributes:
        columns: the pairs.
        step: under which name it counts what it cannot compute: ``select``, ``group_by``, a join's name.
    """

    columns: tuple[tuple[str, str], ...]
    step: str = "select"


WindowedAggregation = WindowAggregation | SessionAggregation | SlidingAggregation

Aggregation = WindowedAggregation | RunningAggregation | TableAggregation

Operator = (
    Filter
    | TableFilter
    | StreamTableJoin
    | StreamStreamJoin
    | TableTableJoin
    | ForeignKeySubscription
    | ForeignKeyLookup
    | ForeignKeyResult
    | WindowedAggregation
    | RunningAggregation
    | TableRegrouping
    | TableAggregation
    | TimeLimitSuppression
    | WallClockSuppression
    | Projection
)


@dataclass(frozen=True, slots=True)
class Stage:
    """Operators that run in one task without another exchange. The *running* relation goes through them one after the other.

    Attributes:
        index: 0 for the first.
        schema: columns that enter its operators (qualified): the running relation's and those of every input of the stage.
        running: ``Input.index`` of the running relation; None: what the stage before emits.
        operators: in the order of T9.
        exchange_key: columns of this stage's *output* whose hash chooses the next stage's task; empty for the last stage.
        emitted: columns of this stage's output where another stage follows; empty for the last stage, whose output is the plan's.
    """

    index: int
    schema: Schema
    running: int | None
    operators: tuple[Operator, ...]
    exchange_key: tuple[str, ...] = ()
    emitted: Schema = field(default_factory=Schema)


@dataclass(frozen=True, slots=True)
class Output:
    """The derived relation.

    Attributes:
        is_windowed: its key ends with window_start, window_end.
        retention_ms: how long closed windows stay readable, else None.
        history_retention_ms: R of a result that is a versioned table, else None.
        has_open: open windows of a result that shows only final ones are kept for reading too.
        log_retention_ms: how long the log of a stream keeps its records, None: for ever.
        closes_after_ms: stream time that far behind a window's end says that its row cannot change any more (W5); None: nothing says it.
    """

    name: str
    kind: Literal["stream", "table"]
    columns: Schema
    key: tuple[str, ...]
    is_windowed: bool
    is_final: bool
    retention_ms: int | None
    history_retention_ms: int | None = None
    closes_after_ms: int | None = None
    has_open: bool = False
    log_retention_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LateRecords:
    """How many late rows are kept for reading, and how long."""

    max_rows: int
    retention_ms: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole query.

    Attributes:
        idle_after_ms: T10: after this long without input a task's clocks advance at wall-clock pace; None: they never do.
        release: number of the newest request to let go at once what an edit has made due (J11).
        hash_seed: of the hashes of keys, a launch's (``engine.core.hashing``).
    """

    query: str
    tasks: int
    inputs: tuple[Input, ...]
    stages: tuple[Stage, ...]
    output: Output
    late_records: LateRecords
    idle_after_ms: int | None = None
    release: int = 0
    hash_seed: int = 0

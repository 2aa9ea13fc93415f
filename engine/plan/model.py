"""The plan: what one query does, stage by stage, as frozen values.

Made from a definition and a catalog by ``engine.plan.build``; read by ``engine.core`` (to build tasks), by the connectors (what
to read, how to key it) and by the sink (what to write). Pure data: it pickles, and ``state_fingerprint`` says whether kept state
fits it.

Column names inside a stage are qualified: ``<alias>.<column>`` (``departures.origin``, ``w.temp``), until a ``Projection`` or a
``WindowAggregation`` gives the output its own names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
    """

    name: str
    type: Literal["log", "files"]
    log_feed: str
    path: str | None = None
    format: Literal["ndjson", "csv", "parquet"] | None = None


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


@dataclass(frozen=True, slots=True)
class Input:
    """One input of the first stage. ``index`` is the declared index: tables before streams (T2).

    Attributes:
        alias: prefix of its columns inside the plan.
        relation: the relation it reads.
        feed: where from.
        columns: the unqualified columns the query needs, key columns included (projection at the source).
        hash_key: unqualified columns whose hash chooses the task; equal values of the join or group key meet in one task.
        where: ``from.where``: a condition over unqualified columns, applied before anything else, else None.
        start: where reading begins: earliest, latest, or an event time in ms.
    """

    index: int
    alias: str
    relation: RelationSchema
    feed: Feed
    columns: tuple[str, ...]
    hash_key: tuple[str, ...]
    where: str | None = None
    start: Literal["earliest", "latest"] | int = "earliest"


@dataclass(frozen=True, slots=True)
class Filter:
    """Keep rows for which ``condition`` (over qualified columns) is true."""

    condition: str


@dataclass(frozen=True, slots=True)
class StreamTableJoin:
    """J1–J8, J11. Reads the stage's running stream and the table input ``table_index``.

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


@dataclass(frozen=True, slots=True)
class AggregateColumn:
    """One aggregate of a window.

    Attributes:
        name: output column.
        function: which aggregate. ``concat`` (values in the window's arrival order) serves the conformance corpora.
        argument: SQL scalar expression over qualified columns, None for ``count(*)``.
    """

    name: str
    function: Literal["count", "count_distinct", "sum", "avg", "min", "max", "concat"]
    argument: str | None


@dataclass(frozen=True, slots=True)
class WindowAggregation:
    """W1, W2, W5–W7: tumbling is hopping with ``advance_ms == size_ms``.

    Attributes:
        name: names the operator in clocks, counters and state.
        group: (output column, qualified source column) pairs.
        emit: every change, or each closed window once.
        having: SQL condition over the output columns, else None.

    Output columns: the group's, ``window_start`` and ``window_end`` (timestamp), the aggregates'.
    """

    name: str
    group: tuple[tuple[str, str], ...]
    size_ms: int
    advance_ms: int
    grace_ms: int
    aggregates: tuple[AggregateColumn, ...]
    emit: Literal["changes", "final"]
    having: str | None = None


@dataclass(frozen=True, slots=True)
class Projection:
    """The ``select``: (output column, SQL scalar expression over the columns before it) pairs."""

    columns: tuple[tuple[str, str], ...]


Operator = Filter | StreamTableJoin | WindowAggregation | Projection


@dataclass(frozen=True, slots=True)
class Stage:
    """Operators that run in one task without another exchange.

    Attributes:
        index: 0 for the first.
        schema: columns that enter its operators (qualified; every input's for stage 0).
        stream_index: input index of the running stream (stage 0); a later stage has the single input 0.
        operators: in the order of T9.
        exchange_key: columns of this stage's *output* whose hash chooses the next stage's task; empty for the last stage.
    """

    index: int
    schema: Schema
    stream_index: int
    operators: tuple[Operator, ...]
    exchange_key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Output:
    """The derived relation.

    Attributes:
        is_windowed: its key ends with window_start, window_end.
        retention_ms: how long closed windows stay readable, else None.
    """

    name: str
    kind: Literal["stream", "table"]
    columns: Schema
    key: tuple[str, ...]
    is_windowed: bool
    is_final: bool
    retention_ms: int | None
    partitions: int = 1


@dataclass(frozen=True, slots=True)
class LateRecords:
    """How many late rows are kept for reading, and how long."""

    max_rows: int
    retention_ms: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole query."""

    query: str
    tasks: int
    inputs: tuple[Input, ...]
    stages: tuple[Stage, ...]
    output: Output
    late_records: LateRecords

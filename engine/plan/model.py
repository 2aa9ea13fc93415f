"""The plan: what one query does, stage by stage, as frozen values.

Made from a definition and a catalog by ``engine.plan.build``; read by ``engine.operators`` (to build tasks), by the connectors (what
to read, how to key it) and by the sink (what to write). Pure data: it pickles, and ``state_fingerprint`` says whether kept state
fits it.

Column names inside a stage are qualified: ``<alias>.<column>`` (``departures.origin``, ``w.temp``), until a ``Projection`` or an
``Aggregation`` gives the output its own names. What a stage does: ``engine.plan.operators``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from engine.definition.relations import EventTimeUnit
from engine.definition.sources.connector import LOG_PREFIX, ChangeRules, LostRecords, RecordLocation, Traits
from engine.definition.sources.connector_list import DEFAULT, MODELS
from engine.expressions.pseudo_columns import EVENT_TIME
from engine.expressions.python_functions import KnownFunction
from engine.expressions.types.types import BIGINT, ColumnType, Schema
from engine.plan.operators.operator import Operator


@dataclass(frozen=True, slots=True)
class Feed:
    """Where an input's records come from. Inputs with an equal ``name`` share one order (T2).

    Attributes:
        name: identity, such as ``log:departures`` or ``files:ndjson:/data/bids``.
        type: the connector.
        log_feed: name of the feed in ``log.feed``.
        place: what its reader must know beside; None: the names say all.
        is_derived: a query writes it: its records are numbered across its partitions (P1).
    """

    name: str
    type: str
    log_feed: str
    place: RecordLocation | None = None
    is_derived: bool = False

    @classmethod
    def in_log(cls, log_feed: str, *, is_derived: bool = False) -> Feed:
        """Return a feed of the built-in log."""
        return cls(LOG_PREFIX + log_feed, DEFAULT.name(), log_feed, is_derived=is_derived)

    @property
    def traits(self) -> Traits:
        """What feeds of its connector are like."""
        return MODELS[self.type].traits


@dataclass(frozen=True, slots=True)
class RelationSchema:
    """A relation as a reader needs it.

    Attributes:
        columns: every declared column (unqualified), in declared order.
        key: key columns; may be empty for a stream.
        event_time: the column that holds the event time, or None: the record's own (log) or arrival time.
        event_time_format: strptime format where that column is a string, else None.
        where: SQL condition a record of a shared feed must meet to belong to the relation, else None.
        max_future_skew_ms: T7's bound, None = off.
        history_retention_ms: R of a versioned table, else None.
        is_stop_on_bad_record: ``on_bad_record: stop``.
        conflict: which put of a key a table keeps (V7): the last by arrival, in an unversioned one perhaps that with the latest event time; of
            a database's changes the one that stands last in the database's log (``engine.operators.rows.change_positions``).
        event_time_unit: what an event-time column of whole numbers counts since 1970.
        change_rules: which changes of a database it takes; None: nothing is said of them.
        lost_records: see ``ConnectorModel``.
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
    conflict: Literal["latest_arrival", "latest_event_time", "latest_position"] = "latest_arrival"
    event_time_unit: EventTimeUnit = "ms"
    change_rules: ChangeRules | None = None
    lost_records: LostRecords | None = None

    @property
    def readable(self) -> Schema:
        """What a condition on its records may read: its columns and ``$event_time_ms``."""
        return Schema((*self.columns.items(), (EVENT_TIME, BIGINT)))


@dataclass(frozen=True, slots=True)
class Computed:
    """A column that an input makes of its relation's own, as records are read.

    Attributes:
        name: unqualified; no relation's column can be called so.
        text: canonical, over what of the relation is readable, unqualified.
    """

    name: str
    text: str
    type: ColumnType


@dataclass(frozen=True, slots=True)
class Input:
    """One input. ``index`` is the declared index: a stage's tables before its streams (T2).

    Attributes:
        alias: prefix of its columns inside the plan.
        feed: where from.
        columns: the unqualified columns the query needs, key columns included (projection at the source).
        computed: columns that it makes behind those, of any of the relation's.
        part_of: index of the input whose relation another query's rows belong to as well (``CatalogEntry.parts``): operators read these
            as that input's; None: an input of its own.
        hash_key: unqualified columns whose hash chooses the task; equal values of the join or group key meet in one task.
        time_key: of a table its key, of a stream that of the first keyed operator, as canonical texts over what of the relation is
            readable: a record with a null among them moves no time (T1a).
        where: ``from.where``: a condition over unqualified columns, applied before anything else, else None.
        start: where reading begins: earliest, latest, or an event time in ms.
        stage: the stage whose operators read it; its packets pass earlier stages untouched.
        functions: in Python, that its texts call.
    """

    index: int
    alias: str
    relation: RelationSchema
    feed: Feed
    columns: tuple[str, ...]
    hash_key: tuple[str, ...]
    time_key: tuple[str, ...] = ()
    where: str | None = None
    start: Literal["earliest", "latest"] | int = "earliest"
    stage: int = 0
    computed: tuple[Computed, ...] = ()
    part_of: int | None = None
    functions: tuple[KnownFunction, ...] = ()

    @property
    def source_name(self) -> str:
        """Name of the relation whose records it reads: the part's own, where it reads a part of a stream."""
        return self.relation.name if self.part_of is None else self.feed.log_feed

    @property
    def read_as(self) -> int:
        """``Input.index`` under which operators have its records."""
        return self.index if self.part_of is None else self.part_of

    @property
    def schema(self) -> Schema:
        """The columns of its records, unqualified."""
        own = self.relation.columns.select(self.columns).items()
        return Schema((*own, *((each.name, each.type) for each in self.computed)))


@dataclass(frozen=True, slots=True)
class Stage:
    """Operators that run in one task without another exchange. The *running* relation goes through them one after the other.

    Attributes:
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
        append_to: the stream of which its records are records, too; None: of none.
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
    append_to: str | None = None


@dataclass(frozen=True, slots=True)
class LateRecords:
    """How many late rows are kept for reading, and how long."""

    max_rows: int
    retention_ms: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole query.

    Attributes:
        idle_after_ms: T10: after this long without records of its streams their time advances at wall-clock pace; None: it never does.
        slowest_after_ms: T12: the time of the streams is that of the slowest partition, of those that have not been at their end for so
            long; None: that of the fastest one.
        release: number of the newest request to release at once what an edit has made due (J11).
        hash_seed: of the hashes of keys, a launch's (``engine.frames.hashing``).
        inputs: by their index: those that operators name, then the further parts of these.
        functions: in Python, that its texts call.
    """

    query: str
    tasks: int
    inputs: tuple[Input, ...]
    stages: tuple[Stage, ...]
    output: Output
    late_records: LateRecords
    idle_after_ms: int | None = None
    slowest_after_ms: int | None = None
    release: int = 0
    hash_seed: int = 0
    functions: tuple[KnownFunction, ...] = ()

    @property
    def whole_inputs(self) -> tuple[Input, ...]:
        """One input for each relation that it reads, however many queries write that."""
        return tuple(item for item in self.inputs if item.part_of is None)

    def lanes_of(self, source: Input) -> tuple[Input, ...]:
        """Return an input and the further parts of its relation, whose records operators read as its own (P13)."""
        return tuple(item for item in self.inputs if item.read_as == source.index)


def needs_ticks(plan: Plan) -> bool:
    """Whether tasks must learn the time also when no record comes (T10, J9, S2), or to go on after a full buffer (S4)."""
    has_timer = any(operator.needs_ticks for stage in plan.stages for operator in stage.operators)
    return plan.idle_after_ms is not None or has_timer or bool(feeds_held_for(plan))


def feeds_held_for(plan: Plan) -> frozenset[str]:
    """Return the feeds of the tables whose progress some join holds for (J9)."""
    held = {operator.awaited_table for stage in plan.stages for operator in stage.operators}
    return frozenset(item.feed.name for item in plan.inputs if item.index in held)


def folded(plan: Plan, *, is_read: bool = False) -> Plan:
    """Let an aggregation right before the sink of an unversioned table leave out changes that the sink would fold anyway (T3).

    Queries that read a table must not depend on the cuts of its producer's batches (P4): a group that was only passed through stays with
    count 0 (A2), and a stream record may stand between two changes of one batch. So an aggregation folds while no query reads its result;
    one that grows with every record always folds, because each change would be written once per record.

    Args:
        plan: as it was built.
        is_read: whether queries read its result: then only an aggregation that grows folds.
    """
    output, last = plan.output, plan.stages[-1]
    if output.kind != "table" or output.history_retention_ms is not None or not output.key:
        return plan
    if len(last.operators) < 2 or last.operators[-1].name is not None:
        return plan
    *before, operator, select = last.operators
    operators = (*before, operator.folded(is_read=is_read), select)
    return replace(plan, stages=(*plan.stages[:-1], replace(last, operators=operators)))


def changes_with_readers(plan: Plan) -> bool:
    """Say whether the first reader of the result makes its producer fold less."""
    return folded(plan) != folded(plan, is_read=True)


def task_key(stage: Stage, plan: Plan) -> tuple[str, ...]:
    """Return the qualified columns of the running relation whose hash chooses the task, as they are called when they enter the stage."""
    if stage.running is None:
        return plan.stages[stage.index - 1].exchange_key
    source = next(item for item in plan.inputs if item.index == stage.running)
    return tuple(f"{source.alias}.{name}" for name in source.hash_key)


def input_key(index: int, plan: Plan) -> tuple[str, ...]:
    """Return the qualified columns of an input whose hash chooses the task."""
    source = next(item for item in plan.inputs if item.index == index)
    return tuple(f"{source.alias}.{name}" for name in source.hash_key)


def followed_keys(stage: Stage, plan: Plan) -> list[tuple[str, ...]]:
    """Return for each operator of a stage what the columns of ``task_key`` are called in the rows that it keeps of the running relation.

    Joins and aggregations give them other names. Where an aggregation groups by a column that always equals one of them, it is that.
    """
    key = task_key(stage, plan)
    equal: dict[str, set[str]] = {}
    for before in plan.stages[: stage.index]:
        for operator in before.operators:
            _behind(operator, (), equal)
    found = []
    for operator in stage.operators:
        sources = operator.stored_by
        key = tuple(next((source for source in sources if source == name or source in equal.get(name, ())), name) for name in key)
        found.append(key)
        key = _behind(operator, key, equal)
    return found


def _behind(operator: Operator, key: tuple[str, ...], equal: dict[str, set[str]]) -> tuple[str, ...]:
    """Return the names behind an operator; notes in ``equal`` which columns equal others there."""
    for left, right in operator.always_equal:
        united = {left, right} | equal.get(left, set()) | equal.get(right, set())
        equal.update(dict.fromkeys(united, united))
    names = operator.renamed
    return tuple(names.get(name, name) for name in key)

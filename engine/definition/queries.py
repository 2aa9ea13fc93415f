"""What a user may say in a query, as pydantic models. Every default stands here and is spelled out when the definition is stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from engine.definition.deliveries.delivery_list import Delivery
from engine.definition.start import Start
from engine.expressions.durations import Duration
from engine.expressions.limits import (
    MAX_AGGREGATES,
    MAX_COLUMNS,
    MAX_DEFINITION_CHARS,
    MAX_FUNCTIONS,
    MAX_JOINS,
    MAX_KEY_PARTS,
    Expression,
    at_most,
)
from engine.expressions.model import NAME_PATTERN, ColumnName, Model, Name, is_absent
from engine.expressions.python_functions import Functions

DAY_MS = 86_400_000
EAGER_GRACE = "1d"
"""Of an eager join, as ksqlDB's without GRACE: results do not wait for it, only how long partners are looked for depends on it (SS5)."""

MAX_TASKS = 256
"""Every task costs a state and a call per batch; more than this is a slip on any cluster this runs on."""
Dialect = Literal["standard", "ksqldb"]


class From(Model):
    """The input: exactly one of `stream` and `table`."""

    stream: str | None = Field(default=None, description="Name of the stream to read; or give `table`.", examples=["orders"])
    table: str | None = Field(default=None, description="Name of the table whose changes to read; or give `stream`.")
    alias: str | None = Field(
        default=None,
        alias="as",
        pattern=NAME_PATTERN,
        description="Prefix of its columns in expressions; absent: the relation's name.",
    )
    where: Expression | None = Field(
        default=None,
        description="Condition over its own columns; what does not fulfil it is not read: it moves no clock and waits for nothing. A "
        "stream's record without a value fulfils none.",
    )

    @model_validator(mode="after")
    def _names_one(self) -> From:
        if (self.stream is None) == (self.table is None):
            raise ValueError("name exactly one input: {'stream': name} or {'table': name}")
        return self

    @property
    def relation(self) -> str:
        return self.stream or self.table or ""


class Hold(Model):
    """A record whose grace is over waits on until the table has been read far enough."""

    until: Literal["table_time", "caught_up"] = Field(
        default="table_time",
        description="`table_time`: every partition of the table was read up to the record's event time plus `slack`; `caught_up`: up to there "
        "or to its end.",
    )
    slack: Duration = Field(default=0, description="How much further than the record's event time the table must have been read.")
    at_most: Duration = Field(
        description="How long a record waits at most, by the wall clock; then it is joined as it is (`hold_expired`)."
    )
    max_rows: int = Field(
        default=1_000_000, ge=1, description="How many records wait at most in each task; beyond, the oldest goes."
    )


class Within(Model):
    """How near in event time two streams' records must be: `left - before <= right <= left + after`."""

    before: Duration = Field(description="How much earlier than the left record the right one may be.")
    after: Duration = Field(description="How much later than the left record the right one may be.")
    grace: Duration = Field(
        default=0,
        description="How far behind stream time a record may come and still meet partners; of an `eager` join a day unless given.",
    )
    unmatched: Literal["when_closed", "eager"] = Field(
        default="when_closed",
        description="When a join that is not inner shows a record without a partner: `when_closed`, once it can have none any more; `eager`, "
        "at once as `preliminary`, and again with each partner that comes.",
    )

    @model_validator(mode="before")
    @classmethod
    def _waits_a_day(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("unmatched") == "eager" and given.get("grace") is None:
            return {**given, "grace": EAGER_GRACE}
        return given


class Join(Model):
    """One join; `table` or `stream` names the other side. Which options fit depends on the pair; what does not fit is refused."""

    table: str | None = Field(default=None, description="Name of the table to join; or give `stream`.", examples=["prices"])
    stream: str | None = Field(default=None, description="Name of the stream to join, with `within`; or give `table`.")
    alias: str | None = Field(
        default=None,
        alias="as",
        pattern=NAME_PATTERN,
        description="Prefix of its columns in expressions; absent: the relation's name.",
    )
    type: Literal["inner", "left", "right", "outer"] = Field(
        default="inner",
        description="`left` also shows what of the left side meets nothing, `right` what of the joined one, `outer` both, where the pair "
        "allows them.",
    )
    on: Expression | None = Field(
        default=None,
        description="Equalities, joined by AND, between expressions over what comes before and over the other side, whose columns have its "
        "prefix; of a table its whole key, as plain columns. Absent: the key's columns by their names.",
        examples=["orders.item = p.item"],
    )
    grace: Duration | None = Field(
        default=None,
        description="How long, in stream time, a record of the stream waits for late changes of the table; absent: it is joined on arrival. "
        "At most the table's `history_retention`.",
    )
    late: Literal["join", "drop", "divert"] = Field(
        default="join",
        description="What becomes of a record that comes later than `grace`: joined at once, dropped and counted, or not joined and kept for "
        "replay.",
    )
    expired: Literal["null", "drop", "divert"] = Field(
        default="null",
        description="What a left join does where the table's history at the record's time is gone: null on the table's side, dropped and "
        "counted, or kept for replay.",
    )
    hold: Hold | None = Field(default=None, description="A further wait after the grace, on the progress of the table.")
    history: Literal["latest", "complete"] = Field(
        default="latest",
        description="Of a join of two tables: `latest` joins what is newest, `complete` also corrects older versions of the result.",
    )
    unversioned_ok: bool = Field(
        default=False, description="Allow `grace` on a table that is not versioned: the record meets its latest row."
    )
    within: Within | None = Field(
        default=None, description="Of a join of two streams: how near in event time their records must be."
    )

    @model_validator(mode="after")
    def _names_one(self) -> Join:
        if (self.stream is None) == (self.table is None):
            raise ValueError("name exactly one side to join: {'table': name} or {'stream': name}")
        return self

    @property
    def relation(self) -> str:
        return self.table or self.stream or ""


class Window(Model):
    """Windows in event time; which sizes they take depends on their type."""

    type: Literal["tumbling", "hopping", "sliding", "session"] = Field(
        description="`tumbling`: one after the other, of `size`; `hopping`: of `size`, one each `advance`; `sliding`: around each record, at "
        "most `difference` long; `session`: as long as records of a key are at most `gap` apart."
    )
    size: Duration | None = Field(default=None, description="Length of a tumbling or hopping window.")
    advance: Duration | None = Field(
        default=None, description="From one hopping window's start to the next one's; at most `size`."
    )
    difference: Duration | None = Field(default=None, description="How far apart the records of a sliding window are at most.")
    gap: Duration | None = Field(default=None, description="Silence after which a session is over.")
    grace: Duration = Field(
        default=0,
        description="How long after its end, in stream time, a window still takes records; then it is final, and what comes is late.",
    )
    retention: Duration | None = Field(
        default=None,
        description="How long after their end windows can be read; absent: 7 days, or longer what the window is open for.",
    )


class Buffer(Model):
    """Bounds of a suppress buffer."""

    max_rows: int | None = Field(default=None, ge=0, description="Rows that are held back; absent: any number.")
    max_bytes: int | None = Field(
        default=None, ge=0, description="Bytes of keys and values that are held back; absent: any number."
    )
    when_full: Literal["emit_early", "stop"] = Field(
        default="stop",
        description="`emit_early`: the oldest rows go before their time; `stop`: the query fails and says what to raise.",
    )


class Suppress(Model):
    """Which updates are held back."""

    mode: Literal[
        "none", "until_window_closes", "until_time_limit", "until_wall_clock_time_limit", "window_end_then_corrections"
    ] = Field(
        default="none",
        description="`none`: every change; `until_window_closes`: each window once, when it is final; `until_time_limit`: a row at most once "
        "per `limit` of stream time; `until_wall_clock_time_limit`: of wall clock; `window_end_then_corrections`: at the window's end, then "
        "each correction.",
    )
    limit: Duration | None = Field(default=None, description="How long a row is held back, in the two modes with a time limit.")
    buffer: Buffer | None = Field(default=None, description="Bounds of what is held back, in the two modes with a time limit.")
    event_driven: bool = Field(
        default=False,
        description="Let rows go only when records arrive (as KIP-424 has it), in mode `until_wall_clock_time_limit`.",
    )


class ResultHistory(Model):
    """The result keeps every version of a key. Like a source's, its retention has no default."""

    history_retention: Duration = Field(
        description="How far behind the result's stream time reads as of a time are exact.", examples=["2d"]
    )


class Idle(Model):
    """When silence counts: how long a query's streams may be silent before their time follows the wall clock."""

    after: Duration = Field(description="Silence by the wall clock, longer than `0s`.")


class Into(Model):
    """The relation that the query writes: exactly one of `stream` and `table`."""

    stream: Name | None = Field(default=None, description="Name of the stream it writes; or give `table`.")
    table: Name | None = Field(default=None, description="Name of the table it writes; or give `stream`.")
    key: Annotated[tuple[ColumnName, ...] | None, at_most(MAX_KEY_PARTS, "key_columns")] = Field(
        default=None,
        exclude_if=is_absent,
        description="Which of its columns are the key of a stream, in order; `[]`: none. Absent: those that show the key of what is read.",
        examples=[["item"]],
    )
    append_to: str | None = Field(
        default=None,
        exclude_if=is_absent,
        description="Name of another stream of which the records that the query writes are records, too, beside those that it has from "
        "elsewhere; several queries may append to one stream. They have columns of that stream, of its types; its key among them, others "
        "that it has are null.",
        examples=["orders"],
    )
    event_time: ColumnName | None = Field(
        default=None,
        exclude_if=is_absent,
        description="Which of its columns holds the event time of its records or rows: a timestamp, a bigint of milliseconds since 1970, or a "
        "string. Absent: the time of what made them. A row without a time is left out, and counted as `result_time_missing`.",
        examples=["shipped_at"],
    )
    event_time_format: str | None = Field(
        default=None,
        exclude_if=is_absent,
        description="How an `event_time` of type string is written; absent: RFC 3339.",
        examples=["%Y-%m-%d %H:%M:%S"],
    )
    retention: Duration | None = Field(default=None, description="How long the stream keeps its records; absent: for ever.")
    connector: Delivery | None = Field(
        default=None,
        description="Where results are delivered to beside the built-in log, in its order: a topic of Kafka, a directory of files, a Delta "
        "table. null: nowhere.",
    )
    versioned: ResultHistory | None = Field(
        default=None, description="Keep every version of the table's rows, to be read as of a time."
    )
    materialize_open: bool = Field(
        default=False, description="Of a table that shows final windows alone: open windows can be read too, marked as `open`."
    )

    @model_validator(mode="after")
    def _names_one(self) -> Into:
        if (self.stream is None) == (self.table is None):
            raise ValueError("name exactly one result: {'stream': name} or {'table': name}")
        if self.retention is not None and self.stream is None:
            raise ValueError(
                "retention is of a stream's log; rows of a table stay: windows for window.retention, versions for versioned.history_retention"
            )
        if self.append_to is not None and self.stream is None:
            raise ValueError("records are appended to a stream, so the result must be one: {'stream': name, 'append_to': …}")
        return self

    @property
    def relation(self) -> str:
        return self.stream or self.table or ""


class LateRecordsKept(Model):
    """How many late records are kept for reading, and how long."""

    max_rows: int = Field(
        default=100_000, ge=0, le=10_000_000, description="How many are kept; the oldest go first. Diverted ones are all kept."
    )
    retention: Duration = Field(default=7 * DAY_MS, description="How long they are kept.")


class QueryDefinition(Model):
    """A query: what it reads, what it does with it, and the relation it writes. Answers spell out every default."""

    name: Name = Field(
        description="Its name: lower case letters, digits and _, starting with a letter.", examples=["priced_orders"]
    )
    dialect: Dialect = Field(
        default="standard",
        exclude_if=lambda dialect: dialect == "standard",
        description="How its expressions are understood: `standard` SQL, or `ksqldb`: as ksqlDB does, where a comparison with NULL is false, "
        "texts are joined by +, and functions have ksqlDB's names and corner cases. Statements make `ksqldb` ones.",
    )
    functions: Annotated[Functions, at_most(MAX_FUNCTIONS, "functions")] = Field(
        default={},
        exclude_if=lambda functions: not functions,
        description="Functions in Python that its expressions call, by name; filled in from those that an administrator has registered.",
    )
    source: From = Field(alias="from", description="What it reads: a stream, or a table's changes.")
    start: Start = Field(
        default="earliest",
        description='Where a stream is read from: `earliest`, `latest`, or an event time `{"at": "2013-01-01T00:00:00Z"}`.',
    )
    tasks: int | None = Field(
        default=None,
        ge=1,
        le=MAX_TASKS,
        description="Units of parallelism, each with its own state; results do not depend on it. Absent: a new query has one for each core "
        "that it can use, an existing one keeps its number. It can be changed later.",
    )
    desired_state: Literal["running", "paused", "stopped"] = Field(
        default="running",
        description="`paused` keeps the state at hand, `stopped` frees its resources; both keep position and results.",
    )
    joins: Annotated[tuple[Join, ...], at_most(MAX_JOINS, "joins")] = Field(default=(), description="Joins, one after the other.")
    where: Expression | None = Field(
        default=None, description="Condition over the joined columns, applied after the joins.", examples=["quantity > 0"]
    )
    group_by: Annotated[tuple[Expression, ...], at_most(MAX_KEY_PARTS, "group_columns")] = Field(
        default=(),
        description="What rows are grouped by: the key of the result. Columns keep their names; the n-th part, where it is more than a column, "
        "is called group_<n>.",
    )
    window: Window | None = Field(default=None, description="Windows in event time; absent: one running row for each group.")
    aggregate: Annotated[dict[ColumnName, Expression], at_most(MAX_AGGREGATES, "aggregates")] = Field(
        default={},
        description="Column of the result → aggregate, one call each.",
        examples=[{"orders": "count(*)", "quantity": "sum(quantity)"}],
    )
    having: Expression | None = Field(default=None, description="Condition over the groups' results.", examples=["count(*) > 1"])
    suppress: Suppress = Field(default=Suppress(), description="Which updates of the result are held back, and until when.")
    select: Annotated[dict[ColumnName, Expression] | None, at_most(MAX_COLUMNS, "columns")] = Field(
        default=None,
        description="Column of the result → expression; absent: all columns.",
        examples=[{"item": "orders.item", "price": "p.price"}],
    )
    idle: Idle | None = Field(
        default=None, description="Let stream time follow the wall clock where input is silent; absent: it stands still."
    )
    clock: Literal["fastest", "slowest"] = Field(
        default="fastest",
        description="How stream time rises where its streams have several partitions: `fastest`: with the greatest event time of all; "
        "`slowest`: with the least, over the partitions, of the greatest event time read of each. A partition that has been at its end for "
        "`idle.after` does not count until its next record; so `slowest` needs `idle`.",
    )
    into: Into = Field(description="The stream or table that it writes.")
    late_records: LateRecordsKept = Field(
        default=LateRecordsKept(), description="Which late records are kept for reading: how many, and for how long."
    )

    @property
    def expressions(self) -> Iterator[str]:
        """Every expression that it has."""
        single = (self.source.where, self.where, self.having, *(join.on for join in self.joins))
        yield from (text for text in single if text is not None)
        yield from (*self.group_by, *self.aggregate.values(), *(self.select or {}).values())

    @model_validator(mode="after")
    def _is_readable(self, info: ValidationInfo) -> QueryDefinition:
        count = sum(map(len, self.expressions))
        if count > MAX_DEFINITION_CHARS and not info.context:
            detail = (
                "The expressions have {count} characters together, and may have {most}; compute parts of them in a query before"
            )
            raise PydanticCustomError(
                "expressions_too_long", detail, {"count": f"{count:,}", "most": f"{MAX_DEFINITION_CHARS:,}"}
            )
        return self

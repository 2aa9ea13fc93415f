"""What a user may say in a query, as pydantic models. Every default stands here and is spelled out when the definition is stored.

Fields of later releases are part of the models, so that their meaning is fixed and a use of them is refused by name
(``engine.plan.build``), never ignored.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from engine.definition.durations import Duration

NAME_PATTERN = r"^[a-z][a-z0-9_]{0,62}$"
DAY_MS = 86_400_000
EAGER_GRACE = "1d"
"""Of an eager join, as ksqlDB's without GRACE: results do not wait for it, only how long partners are looked for depends on it (SS5)."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DEFAULT_TASKS = 4
MAX_TASKS = 256
"""Every task costs a state and a call per batch; more than this is a slip on any cluster this runs on."""

Name = Annotated[str, Field(pattern=NAME_PATTERN, description="Lower case letters, digits and _, starting with a letter.")]
Expression = Annotated[str, Field(min_length=1, max_length=10_000)]


class Model(BaseModel):
    """Frozen, and unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class From(Model):
    """The input: exactly one of ``stream`` and ``table``."""

    stream: str | None = None
    table: str | None = None
    alias: str | None = Field(default=None, alias="as", pattern=NAME_PATTERN)
    where: Expression | None = None

    @model_validator(mode="after")
    def _names_one(self) -> From:
        if (self.stream is None) == (self.table is None):
            raise ValueError("name exactly one input: {'stream': name} or {'table': name}")
        return self

    @property
    def relation(self) -> str:
        return self.stream or self.table or ""


def _instant(value: Any) -> datetime:
    """Read RFC 3339. A bare number is refused: whether it counts seconds or milliseconds would be a guess."""
    if isinstance(value, datetime):
        moment = value
    elif isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(f"{value[:40]!r} is no time; write it like 2013-01-01T00:00:00Z") from None
    else:
        raise ValueError("write the time as a text like 2013-01-01T00:00:00Z")  # noqa: TRY004 - becomes a problem of the field
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


class StartAt(Model):
    """Start at an event time; one without an offset is UTC."""

    at: Annotated[datetime, BeforeValidator(_instant)]

    @property
    def at_ms(self) -> int:
        return (self.at - EPOCH) // timedelta(milliseconds=1)


Start = Annotated[
    Annotated[Literal["earliest", "latest"], Tag("word")] | Annotated[StartAt, Tag("time")],
    Discriminator(lambda value: "word" if isinstance(value, str) else "time"),
]


class Hold(Model):
    """J9: a record whose grace is over waits on until the table has been read far enough."""

    until: Literal["table_time", "caught_up"] = "table_time"
    slack: Duration = 0
    at_most: Duration
    max_rows: int = Field(default=1_000_000, ge=1)


class Within(Model):
    """How near in event time two streams' records must be: ``left - before <= right <= left + after``.

    ``unmatched`` says when a left or outer join shows a record without a partner: once it can have none any more, or, ``eager``, at once
    as ``preliminary`` and again with each partner that comes (SS5). Then the grace is a day unless it is given.
    """

    before: Duration
    after: Duration
    grace: Duration = 0
    unmatched: Literal["when_closed", "eager"] = "when_closed"

    @model_validator(mode="before")
    @classmethod
    def _waits_a_day(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("unmatched") == "eager" and given.get("grace") is None:
            return {**given, "grace": EAGER_GRACE}
        return given


class Join(Model):
    """One join; ``table`` or ``stream`` names the other side. Which options fit depends on the pair (``engine.plan.joins``)."""

    table: str | None = None
    stream: str | None = None
    alias: str | None = Field(default=None, alias="as", pattern=NAME_PATTERN)
    type: Literal["inner", "left", "right", "outer"] = "inner"
    on: Expression | None = None
    grace: Duration | None = None
    late: Literal["join", "drop", "divert"] = "join"
    expired: Literal["null", "drop", "divert"] = "null"
    hold: Hold | None = None
    history: Literal["latest", "complete"] = "latest"
    unversioned_ok: bool = False
    within: Within | None = None

    @model_validator(mode="after")
    def _names_one(self) -> Join:
        if (self.stream is None) == (self.table is None):
            raise ValueError("name exactly one side to join: {'table': name} or {'stream': name}")
        return self

    @property
    def relation(self) -> str:
        return self.table or self.stream or ""


class Window(Model):
    """A window; which sizes it takes depends on its type."""

    type: Literal["tumbling", "hopping", "sliding", "session"]
    size: Duration | None = None
    advance: Duration | None = None
    difference: Duration | None = None
    gap: Duration | None = None
    grace: Duration = 0
    retention: Duration | None = None


class Buffer(Model):
    """Bounds of a suppress buffer."""

    max_rows: int | None = Field(default=None, ge=0)
    max_bytes: int | None = Field(default=None, ge=0)
    when_full: Literal["emit_early", "stop"] = "stop"


class Suppress(Model):
    """Which updates are held back."""

    mode: Literal[
        "none", "until_window_closes", "until_time_limit", "until_wall_clock_time_limit", "window_end_then_corrections"
    ] = "none"
    limit: Duration | None = None
    buffer: Buffer | None = None
    event_driven: bool = False


class ResultHistory(Model):
    """The result keeps every version of a key. Like a source's, its retention has no default."""

    history_retention: Duration


class Idle(Model):
    """T10: how long a task's input may be silent before its clocks advance with the wall clock."""

    after: Duration


class Into(Model):
    """The derived relation: exactly one of ``stream`` and ``table``.

    ``retention`` says how long a stream's log keeps its records; absent: for ever, as a source's does.
    """

    stream: Name | None = None
    table: Name | None = None
    retention: Duration | None = None
    connector: dict[str, Any] | None = None
    versioned: ResultHistory | None = None
    materialize_open: bool = False

    @model_validator(mode="after")
    def _names_one(self) -> Into:
        if (self.stream is None) == (self.table is None):
            raise ValueError("name exactly one result: {'stream': name} or {'table': name}")
        if self.retention is not None and self.stream is None:
            raise ValueError(
                "retention is of a stream's log; rows of a table stay: windows for window.retention, versions for versioned.history_retention"
            )
        return self

    @property
    def relation(self) -> str:
        return self.stream or self.table or ""


class LateRecordsKept(Model):
    """How many late rows are kept for reading, and how long."""

    max_rows: int = Field(default=100_000, ge=0, le=10_000_000)
    retention: Duration = 7 * DAY_MS


class QueryDefinition(Model):
    """A query as stored. ``model_dump(mode="json", by_alias=True)`` spells out every default."""

    name: Name
    source: From = Field(alias="from")
    start: Start = "earliest"
    tasks: int = Field(default=DEFAULT_TASKS, ge=1, le=MAX_TASKS)
    desired_state: Literal["running", "paused", "stopped"] = "running"
    joins: tuple[Join, ...] = ()
    where: Expression | None = None
    group_by: tuple[Expression, ...] = Field(
        default=(), description="Columns keep their names; the n-th part, where it is more than a column, is called group_<n>."
    )
    window: Window | None = None
    aggregate: dict[Name, Expression] = {}
    having: Expression | None = None
    suppress: Suppress = Suppress()
    select: dict[Name, Expression] | None = None
    idle: Idle | None = None
    into: Into
    late_records: LateRecordsKept = LateRecordsKept()

"""Definitions of sources and queries as values: they print as the JSON of the interface, and only what is given is said.

Everything else has the service's default, which it spells out in its answer. What may be given where, and what it means, is in the service's
reference of definitions. ``client.queries.validate(...)`` says what is wrong with one, and gives it as SQL.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from slackwater.parameters import Duration, Instant, duration, instant

DesiredState: TypeAlias = Literal["running", "paused", "stopped"]


class _Absent:
    """The type of ``ABSENT``."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = _Absent()
"""Not said: the service's default holds. ``None`` is said, as null."""

_NAMES = {"from_": "from", "as_": "as"}


class Definition:
    """A part of a definition; see the module."""

    __slots__ = ()

    def json(self) -> dict[str, Any]:
        """Return it as the interface has it."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]  # a dataclass
        return {_NAMES.get(name, name): _plain(value) for name, value in parts.items() if value is not ABSENT}

    def __str__(self) -> str:
        return json.dumps(self.json(), indent=2, ensure_ascii=False)


def json_of(definition: Definition | Mapping[str, Any]) -> dict[str, Any]:
    """Return a definition, or a part of one, as JSON."""
    return definition.json() if isinstance(definition, Definition) else _plain(definition)


def _plain(value: Any) -> Any:
    match value:
        case Definition():
            return value.json()
        case timedelta():
            return duration(value)
        case Mapping():
            return {name: _plain(part) for name, part in value.items()}
        case str():
            return value
        case Sequence():
            return [_plain(part) for part in value]
        case _:
            return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Log(Definition):
    """The built-in log, which is where records are unless another connector is named."""

    type: Literal["log"] = "log"
    partitions: int | _Absent = ABSENT
    feed: str | _Absent = ABSENT
    where: str | _Absent = ABSENT
    retention: Duration | _Absent | None = ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Files(Definition):
    """A directory of files that the service reads."""

    path: str
    format: Literal["ndjson", "csv", "parquet"]
    where: str | _Absent = ABSENT
    type: Literal["files"] = "files"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka(Definition):
    """A topic that the service reads, of a stored connection or of brokers that ask for no credentials."""

    topic: str
    connection: str | _Absent = ABSENT
    bootstrap: str | _Absent = ABSENT
    key: Mapping[str, Any] | _Absent = ABSENT
    value: Mapping[str, Any] | _Absent = ABSENT
    record_columns: Mapping[str, str] | _Absent = ABSENT
    on_lost: Literal["stop", "skip"] | _Absent = ABSENT
    where: str | _Absent = ABSENT
    type: Literal["kafka"] = "kafka"


Connector: TypeAlias = Log | Files | Kafka | Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Versioned(Definition):
    """Every version of a key is kept, so far behind the table's stream time."""

    history_retention: Duration


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamDefinition(Definition):
    """A stream that is a source.

    >>> print(StreamDefinition(key=["item"], columns={"item": "string", "at": "timestamp"}, event_time="at"))
    {
      "columns": {
        "item": "string",
        "at": "timestamp"
      },
      "key": [
        "item"
      ],
      "event_time": "at"
    }
    """

    columns: Mapping[str, str]
    key: Sequence[str] | _Absent = ABSENT
    event_time: str | _Absent | None = ABSENT
    event_time_format: str | _Absent | None = ABSENT
    event_time_unit: Literal["s", "ms", "us", "ns"] | _Absent | None = ABSENT
    connector: Connector | _Absent = ABSENT
    max_future_skew: Duration | _Absent | None = ABSENT
    on_bad_record: Literal["reject", "stop"] | _Absent = ABSENT
    read_only: bool | _Absent = ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDefinition(Definition):
    """A table that is a source."""

    key: Sequence[str]
    columns: Mapping[str, str]
    event_time: str | _Absent | None = ABSENT
    event_time_format: str | _Absent | None = ABSENT
    event_time_unit: Literal["s", "ms", "us", "ns"] | _Absent | None = ABSENT
    versioned: Versioned | _Absent | None = ABSENT
    materialize: bool | _Absent = ABSENT
    conflict: Literal["latest_arrival", "latest_event_time"] | _Absent = ABSENT
    connector: Connector | _Absent = ABSENT
    max_future_skew: Duration | _Absent | None = ABSENT
    on_bad_record: Literal["reject", "stop"] | _Absent = ABSENT
    read_only: bool | _Absent = ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class From(Definition):
    """What a query reads: one of ``stream`` and ``table``."""

    stream: str | _Absent = ABSENT
    table: str | _Absent = ABSENT
    as_: str | _Absent = ABSENT
    where: str | _Absent = ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold(Definition):
    """A record whose grace is over waits on until the table has been read far enough."""

    at_most: Duration
    until: Literal["table_time", "caught_up"] | _Absent = ABSENT
    slack: Duration | _Absent = ABSENT
    max_rows: int | _Absent = ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Within(Definition):
    """How near in event time the records of two streams must be."""

    before: Duration
    after: Duration
    grace: Duration | _Absent = ABSENT
    unmatched: Literal["when_closed", "eager"] | _Absent = ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Join(Definition):
    """One join, with a ``table``, or with a ``stream`` and ``within``."""

    table: str | _Absent = ABSENT
    stream: str | _Absent = ABSENT
    as_: str | _Absent = ABSENT
    type: Literal["inner", "left", "right", "outer"] | _Absent = ABSENT
    on: str | _Absent = ABSENT
    grace: Duration | _Absent | None = ABSENT
    late: Literal["join", "drop", "divert"] | _Absent = ABSENT
    expired: Literal["null", "drop", "divert"] | _Absent = ABSENT
    hold: Hold | _Absent | None = ABSENT
    history: Literal["latest", "complete"] | _Absent = ABSENT
    unversioned_ok: bool | _Absent = ABSENT
    within: Within | _Absent | None = ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Window(Definition):
    """Windows in event time; ``tumbling``, ``hopping``, ``sliding`` and ``session`` make one."""

    type: Literal["tumbling", "hopping", "sliding", "session"]
    size: Duration | _Absent = ABSENT
    advance: Duration | _Absent = ABSENT
    difference: Duration | _Absent = ABSENT
    gap: Duration | _Absent = ABSENT
    grace: Duration | _Absent = ABSENT
    retention: Duration | _Absent | None = ABSENT


def tumbling(size: Duration, *, grace: Duration = "0s", retention: Duration | None = None) -> Window:
    """Return windows one after the other."""
    return Window(type="tumbling", size=size, grace=grace, retention=retention)


def hopping(size: Duration, advance: Duration, *, grace: Duration = "0s", retention: Duration | None = None) -> Window:
    """Return windows that overlap: one each ``advance``."""
    return Window(type="hopping", size=size, advance=advance, grace=grace, retention=retention)


def sliding(difference: Duration, *, grace: Duration = "0s", retention: Duration | None = None) -> Window:
    """Return windows around each record."""
    return Window(type="sliding", difference=difference, grace=grace, retention=retention)


def session(gap: Duration, *, grace: Duration = "0s", retention: Duration | None = None) -> Window:
    """Return windows that end with a silence."""
    return Window(type="session", gap=gap, grace=grace, retention=retention)


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer(Definition):
    """Bounds of a suppress buffer."""

    max_rows: int | _Absent | None = ABSENT
    max_bytes: int | _Absent | None = ABSENT
    when_full: Literal["emit_early", "stop"] | _Absent = ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppress(Definition):
    """Which updates are held back; ``FINAL`` is the usual one."""

    mode: Literal["none", "until_window_closes", "until_time_limit", "until_wall_clock_time_limit", "window_end_then_corrections"]
    limit: Duration | _Absent | None = ABSENT
    buffer: Buffer | _Absent | None = ABSENT
    event_driven: bool | _Absent = ABSENT


FINAL = Suppress(mode="until_window_closes")
"""Each window once, when it can no longer change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle(Definition):
    """After so long a silence, stream time follows the wall clock."""

    after: Duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Into(Definition):
    """What a query writes: one of ``stream`` and ``table``."""

    stream: str | _Absent = ABSENT
    table: str | _Absent = ABSENT
    key: Sequence[str] | _Absent | None = ABSENT
    append_to: str | _Absent | None = ABSENT
    event_time: str | _Absent | None = ABSENT
    event_time_format: str | _Absent | None = ABSENT
    retention: Duration | _Absent | None = ABSENT
    connector: Mapping[str, Any] | _Absent | None = ABSENT
    versioned: Versioned | _Absent | None = ABSENT
    materialize_open: bool | _Absent = ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class LateRecordsKept(Definition):
    """How many late records are kept, and how long."""

    max_rows: int | _Absent = ABSENT
    retention: Duration | _Absent = ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAt(Definition):
    """A stream is read from an event time on."""

    at: Instant

    def json(self) -> dict[str, Any]:
        """See ``Definition``."""
        return {"at": self.at if isinstance(self.at, int) else instant(self.at)}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryDefinition(Definition):
    """A query: what it reads, what it does with it, and what it writes.

    >>> hourly = QueryDefinition(
    ...     name="per_hour", from_=From(stream="orders"), group_by=["item"], window=tumbling("1h", grace="10m"),
    ...     aggregate={"orders": "count(*)"}, suppress=FINAL, into=Into(table="per_hour"))
    >>> hourly.json()["window"]
    {'type': 'tumbling', 'size': '1h', 'grace': '10m', 'retention': None}
    """

    name: str
    from_: From | Mapping[str, Any]
    into: Into | Mapping[str, Any]
    dialect: Literal["standard", "ksqldb"] | _Absent = ABSENT
    functions: Mapping[str, Any] | _Absent = ABSENT
    start: Literal["earliest", "latest"] | StartAt | _Absent = ABSENT
    tasks: int | _Absent = ABSENT
    desired_state: DesiredState | _Absent = ABSENT
    joins: Sequence[Join | Mapping[str, Any]] | _Absent = ABSENT
    where: str | _Absent | None = ABSENT
    group_by: Sequence[str] | _Absent = ABSENT
    window: Window | Mapping[str, Any] | _Absent | None = ABSENT
    aggregate: Mapping[str, str] | _Absent = ABSENT
    having: str | _Absent | None = ABSENT
    suppress: Suppress | _Absent = ABSENT
    select: Mapping[str, str] | _Absent | None = ABSENT
    idle: Idle | _Absent | None = ABSENT
    clock: Literal["fastest", "slowest"] | _Absent = ABSENT
    late_records: LateRecordsKept | _Absent = ABSENT

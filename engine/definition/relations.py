"""What a user may say when registering a source, as pydantic models."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from engine.definition.queries import DAY_MS
from engine.definition.sources.connector_list import DEFAULT, Connector
from engine.expressions.durations import Duration
from engine.expressions.limits import MAX_COLUMNS, MAX_KEY_PARTS, at_most
from engine.expressions.model import ColumnName, Model, TypeText
from engine.expressions.types.types import Schema, parse_type

Key = Annotated[tuple[str, ...], at_most(MAX_KEY_PARTS, "key_columns")]
EventTimeUnit = Literal["s", "ms", "us", "ns"]


class Versioned(Model):
    """The table keeps every version of a key. `history_retention` has no default: it must be given."""

    history_retention: Duration = Field(
        description="How far behind the table's stream time changes are accepted and reads as of a time are exact.",
        examples=["2d"],
    )


class SourceDefinition(Model):
    """What streams and tables share."""

    key: Key = Field(description="Columns of the key.")
    columns: Annotated[dict[ColumnName, TypeText], at_most(MAX_COLUMNS, "columns")] = Field(
        min_length=1,
        description="Column → type, in order. In the body of a PUT `infer` in place of all: as the connector finds them (topics, files).",
        examples=[{"item": "string", "price": "double", "at": "timestamp"}],
    )
    event_time: str | None = Field(
        default=None, description="The column that holds a record's event time; absent: the time of its arrival.", examples=["at"]
    )
    event_time_format: str | None = Field(
        default=None, description="How an event time of type string is written; absent: RFC 3339.", examples=["%Y-%m-%d %H:%M:%S"]
    )
    event_time_unit: EventTimeUnit | None = Field(
        default=None,
        description="What an event time of type bigint counts since 1970; absent: ms. One of type int counts seconds: `s`.",
    )
    connector: Connector = Field(default=DEFAULT(), description="Where records come from; absent: the built-in log.")
    max_future_skew: Duration | None = Field(
        default=DAY_MS,
        description="How far ahead of the wall clock an event time may be; beyond, the record is refused (`future_event_time`). null: any.",
    )
    on_bad_record: Literal["reject", "stop"] = Field(
        default="reject",
        description="What a record that cannot be read does: it is refused, kept and counted, or it stops the queries that read it.",
    )
    read_only: bool = Field(
        default=False,
        exclude_if=lambda is_read_only: not is_read_only,
        description="Others fill it (`CREATE SOURCE …`): records cannot be appended to it, and no query appends to it. They come from files, or "
        "by another relation of its feed.",
    )

    @model_validator(mode="before")
    @classmethod
    def _log_by_default(cls, value: Any) -> Any:
        """Let ``{"partitions": 2}`` mean the log."""
        connector = value.get("connector") if isinstance(value, dict) else None
        if isinstance(connector, dict) and "type" not in connector:
            return {**value, "connector": {"type": DEFAULT.name(), **connector}}
        return value

    @model_validator(mode="before")
    @classmethod
    def _milliseconds_by_default(cls, value: Any) -> Any:
        """Spell out that a bigint counts milliseconds."""
        if not isinstance(value, dict) or value.get("event_time_unit") is not None:
            return value
        columns, name = value.get("columns"), value.get("event_time")
        declared = columns.get(name) if isinstance(columns, dict) and isinstance(name, str) else None
        is_bigint = isinstance(declared, str) and declared.strip().lower() == "bigint"
        return {**value, "event_time_unit": "ms"} if is_bigint else value

    @property
    def schema_(self) -> Schema:
        return Schema(tuple((name, parse_type(text)) for name, text in self.columns.items()))


class StreamDefinition(SourceDefinition):
    """A stream: records with key, value and event time. A stream may have no key."""

    key: Key = Field(
        default=(),
        description="Columns of the key; may be none. Records of one key keep their order. A key of windows that were made elsewhere ends with "
        "`window_start` and `window_end`.",
        examples=[["item"]],
    )


class TableDefinition(SourceDefinition):
    """A table: upserts and deletes by key."""

    key: Key = Field(min_length=1, description="Columns of the primary key.", examples=[["item"]])
    versioned: Versioned | None = Field(
        default=None,
        description="Keep every version of a key, so that joins and reads find the one of a time; absent: the latest put alone.",
    )
    materialize: bool = Field(default=False, description="Keep the rows for reading at `/rows`.")
    conflict: Literal["latest_arrival", "latest_event_time"] = Field(
        default="latest_arrival",
        description="Which put of a key counts in a table without `versioned`: the one that came last, or the one with the latest event "
        "time (of equal ones the last): an older put or delete is then ignored, and counted as `out_of_order_ignored`.",
    )

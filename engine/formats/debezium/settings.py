"""The settings of a table's change events for what their schema does not say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from engine.definition.relations import EventTimeUnit
from engine.expressions.types.types import BIGINT, STRING, ColumnType, Schema
from engine.formats.port import FormatInvalid

Decimals = Literal["bytes", "text"]


@dataclass(frozen=True, slots=True)
class DebeziumSettings:
    """How change events are read.

    Attributes:
        columns: of the relation.
        key: its key columns: the only ones in a delete.
        encoding: of the envelope.
        has_registry: events begin with the number of a registered schema (Avro always).
        time_unit: the unit of numbers in columns of time and timestamp, if an event has no schema: ``time.precision.mode``
            ``connect`` is ``ms``; for ``adaptive`` it depends on the database's column.
        decimals: the meaning of texts in decimal columns without a schema: base64 of bytes (``decimal.handling.mode`` ``precise``, with the
            scale of the column), or digits (``string``). None: such an event is refused, because "1234" could be either.
    """

    columns: Schema
    key: tuple[str, ...]
    encoding: Literal["json", "avro"] = "json"
    has_registry: bool = False
    time_unit: EventTimeUnit = "ms"
    decimals: Decimals | None = None

    def __post_init__(self) -> None:
        if self.encoding == "avro" and not self.has_registry:
            raise FormatInvalid("debezium events in avro name their schemas: give `registry`")
        if self.time_unit == "s":
            raise FormatInvalid("Debezium counts no seconds: a time unit is ms, us or ns")

    def envelope(self) -> Schema:
        """Return the columns of the envelope that are read."""
        row = ColumnType("struct", fields=self.columns.items())
        return Schema((("before", row), ("after", row), ("op", STRING), ("ts_ms", BIGINT), ("source", SOURCE)))


SOURCE: Final = ColumnType(
    "struct",
    fields=(
        ("connector", STRING), ("ts_ms", BIGINT), ("ts_us", BIGINT), ("lsn", BIGINT), ("file", STRING), ("pos", BIGINT),
        ("row", BIGINT), ("commit_lsn", STRING), ("change_lsn", STRING), ("event_serial_no", BIGINT), ("scn", STRING),
        ("name", STRING), ("db", STRING), ("schema", STRING), ("table", STRING),
    ),
)  # fmt: skip
"""The fields of a change's source: its time and its position in the database's log."""

"""Reads Debezium's change events: those of a body into records of a relation, those of a topic into changes of a table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from engine.definition.sources.connector import ChangeRules
from engine.formats.avro.reader import RegisteredAvroReader
from engine.formats.debezium.absent import ABSENT, absent_columns, unforgiven
from engine.formats.debezium.events import Changes, Rows, counted, rows_of
from engine.formats.debezium.fields import DebeziumSettings
from engine.formats.debezium.json_envelopes import JsonEnvelopes
from engine.formats.debezium.positions import TABLE
from engine.formats.json.json_reader import RegisteredJsonReader
from engine.formats.port import NO_REGISTRY, Read, Reader, SchemaStore
from engine.formats.records import long_rejects, too_long
from engine.plan.model import RelationSchema
from engine.records.canonical import empty_rejects, reject_rows
from engine.records.excerpts import excerpts_of


class DebeziumReader:
    """Reads change events. Tombstones are left out: Debezium's delete came before, with the time of the change."""

    def __init__(self, settings: DebeziumSettings, store: SchemaStore = NO_REGISTRY) -> None:
        self._settings = settings
        self._store = store
        self._envelopes = _envelopes(settings, store)

    def read(self, values: pl.Series, newest: pl.DataFrame | None = None) -> Changes:
        """Read events.

        Args:
            values: bytes; null: a tombstone.
            newest: newest positions of keys from earlier events; see ``without_older``.

        Raises:
            RegistryUnavailable: read the events again later.
        """
        return counted(self.rows(values), self._settings.key, newest)

    def rows(self, values: pl.Series) -> Rows:
        """Read events, without leaving out any because of earlier ones; see ``read``."""
        there = values.is_not_null()
        if there.all():
            return self._rows(values, self._envelopes.read(values))
        places = there.arg_true().cast(pl.Int64)
        raw, rejects = self._envelopes.read(values.filter(there))
        raw = raw.with_columns(places.gather(raw.get_column("_offset")).alias("_offset"))
        rejects = rejects.with_columns(places.gather(rejects.get_column("offset")).alias("offset"))
        return self._rows(values, Read(raw, rejects))

    def _rows(self, values: pl.Series, envelopes: Read) -> Rows:
        raw, rejects = rows_of(envelopes, self._settings.columns, self._settings.key)
        return Rows(raw.with_columns(absent_columns(raw, values, self._settings, self._store)), rejects)


def _envelopes(settings: DebeziumSettings, store: SchemaStore) -> Reader:
    if settings.encoding == "avro":
        return RegisteredAvroReader(settings.envelope(), store)
    inner = JsonEnvelopes(settings)
    return RegisteredJsonReader(inner, settings.envelope()) if settings.has_registry else inner


@dataclass(frozen=True, slots=True)
class ChangeReader:
    """How a topic's change events are read for one relation.

    Each event is validated alone, so earlier events, the reader and the start position do not matter. Over HTTP
    earlier events decide the expected columns and table; here the definition does.

    Attributes:
        relation: whose they are.
        reader: of the events in the values. Keys are not read, because events contain their rows' keys.
    """

    relation: RelationSchema
    reader: DebeziumReader

    def read(self, keys: pl.Series, values: pl.Series) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Read events.

        Args:
            keys: of the records.
            values: bytes; null: a tombstone, which adds nothing to the delete before it.

        Returns:
            ``(raw, rejects)`` by place, as in ``TopicReader``, but a changed key makes two rows of one event, and a tombstone none. The frame
            also has the columns of ``engine.operators.rows.change_positions``. ``_ts``, or ``$event_time_ms`` if a column has the time, is the
            time of the change in the database.

        Raises:
            RegistryUnavailable: read the batch again later.
        """
        long = too_long(keys, values)
        found = self.reader.rows(values if long is None else values.set(long, None))
        raw, rejects = found.raw, found.rejects
        if self.relation.event_time is None:
            raw = raw.rename({"$event_time_ms": "_ts"})
        raw, unfit = self._fitting(raw)
        if long is not None:
            rejects = pl.concat([rejects, long_rejects(keys, values, long)])
        return raw, pl.concat([rejects, unfit]).sort("offset") if unfit.height or long is not None else rejects

    def _fitting(self, raw: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Refuse rows of unexpected tables, and rows without a declared column: their nulls would be no values."""
        rules = self.relation.change_rules or ChangeRules()
        absent = unforgiven(raw.get_column(ABSENT), rules.absent)
        lacks = (absent.list.len() > 0).fill_null(value=False)
        if rules.tables:
            is_other = ~raw.get_column(TABLE).is_in(rules.tables).fill_null(value=False)
        else:
            is_other = pl.repeat(value=False, n=raw.height, dtype=pl.Boolean, eager=True)
        fitting = raw.drop(ABSENT, TABLE)
        is_unfit = lacks | is_other
        if not is_unfit.any():
            return fitting, empty_rejects()
        refused = raw.with_columns(absent).filter(is_unfit)
        texts = excerpts_of(refused.select(name for name in refused.columns if not name.startswith("_")))
        said = zip(
            refused.get_column("_offset").to_list(),
            is_other.filter(is_unfit).to_list(),
            refused.get_column(TABLE).to_list(),
            refused.get_column(ABSENT).to_list(),
            texts,
            strict=True,
        )
        rows = [
            (place, "other_table", _other(table, rules.tables), text)
            if other
            else (place, "column_missing", _lacking(names), text)
            for place, other, table, names, text in said
        ]
        return fitting.filter(~is_unfit), reject_rows(rows).unique("offset", keep="first", maintain_order=True)


def _lacking(names: Sequence[str]) -> str:
    shown = names[:_NAMED]
    return (
        f"the row has no column {', '.join(map(repr, shown))}: it was dropped, renamed or not yet there when the database changed the row, "
        f'or is spelt in another way. Correct `columns`, or say "absent": {json.dumps(shown)} of `value` if rows may lack it'
    )


def _other(table: str | None, named: Sequence[str]) -> str:
    whose = "of a table that the event does not say" if table is None else f"of the database's table {table[:_SHOWN_CHARS]!r}"
    return f"the change is {whose}, and `source_table` names {', '.join(map(repr, named[:_NAMED]))[:_SHOWN_NAMES_CHARS]}"


_NAMED = 8
"""The most columns, or tables, in a refusal's text."""

_SHOWN_CHARS = 64
_SHOWN_NAMES_CHARS = 300
"""The most characters of a table's name, and of several, in a refusal's text."""

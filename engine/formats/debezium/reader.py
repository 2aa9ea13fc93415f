"""Reads Debezium's change events into records of a relation."""

from __future__ import annotations

from typing import Protocol

import polars as pl

from engine.formats.avro.reader import RegisteredAvroReader
from engine.formats.debezium.absent import absent_columns
from engine.formats.debezium.events import Changes, Rows, counted, rows_of
from engine.formats.debezium.json_envelopes import JsonEnvelopes
from engine.formats.debezium.settings import DebeziumSettings
from engine.formats.port import NO_REGISTRY, Read, SchemaStore
from engine.formats.registry.wire import read_by_schema


class _Envelopes(Protocol):
    def read(self, payloads: pl.Series) -> Read: ...


class _RegisteredJson:
    """JSON envelopes after a schema's number. They contain no schema, and the registered one is not used."""

    def __init__(self, inner: JsonEnvelopes, settings: DebeziumSettings) -> None:
        self._inner = inner
        self._columns = settings.envelope()

    def read(self, payloads: pl.Series) -> Read:
        return read_by_schema(payloads, lambda group: self._inner.read(group.values), self._columns)


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


def _envelopes(settings: DebeziumSettings, store: SchemaStore) -> _Envelopes:
    if settings.encoding == "avro":
        return RegisteredAvroReader(settings.envelope(), store)
    inner = JsonEnvelopes(settings)
    return _RegisteredJson(inner, settings) if settings.has_registry else inner

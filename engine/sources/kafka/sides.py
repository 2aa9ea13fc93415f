"""How a topic is read for a relation: the columns in its keys and values, their formats and schemas."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Final, Literal, cast, get_args

import polars as pl

from engine.connections.certificates import CertificateUnreadable
from engine.connections.secret_sources import SecretMissing, SecretSources
from engine.connections.stored import WrongConnection, load
from engine.definition.relations import EventTimeUnit
from engine.definition.sources.kafka import KafkaPlace, Side
from engine.errors import SourceUnavailable
from engine.expressions.types.types import Schema
from engine.formats.debezium.fields import DebeziumSettings, Decimals
from engine.formats.debezium.reader import ChangeReader, DebeziumReader
from engine.formats.format_list import reader_of
from engine.formats.port import NO_REGISTRY, Reader, RegistryRefused, RegistryUnavailable, SchemaStore, SideConfig, SideName
from engine.formats.records import RecordReader, TopicReader
from engine.formats.registry.client import Registry
from engine.formats.registry.settings import settings_of
from engine.plan.model import RelationSchema
from engine.postgres.postgres import shared_connection

ANSWER_S: Final = 5.0
QUESTION_S: Final = 20.0
KEPT_S: Final = 600.0
"""A registry's client is replaced after this time, so that changed secrets take effect."""

_KEPT: Final[dict[tuple[str, str], tuple[float, Registry]]] = {}
_LOCK: Final = threading.Lock()


def topic_reader(dsn: str, place: KafkaPlace, relation: RelationSchema, among: RelationSchema | None = None) -> RecordReader:
    """Return the reader of a topic's records for a relation.

    Args:
        dsn: of the database with the connections.
        place: the topic's formats.
        relation: whose columns are needed.
        among: the whole relation, if ``relation`` has some of its columns; its key decides the content of keys.

    Raises:
        FormatInvalid: the settings do not fit the columns.
        SourceUnavailable: the registry's connection cannot be used here.
    """
    whole = among or relation
    if place.value is not None and place.holds_changes:
        return _changes(dsn, place.value, relation, place)
    taken = {name for name, _ in place.record_columns}
    of_key = [name for name in whole.key if name not in taken]
    has_key = place.value is not None and place.value.has_key
    of_value = [name for name in whole.columns.names if name not in taken and (has_key or name not in of_key)]
    key = _reader(dsn, place.key, "key", whole.columns, of_key, relation.columns)
    value = _reader(dsn, place.value, "value", whole.columns, of_value, relation.columns)
    return TopicReader(relation, key, value)


def _changes(dsn: str, side: Side, relation: RelationSchema, place: KafkaPlace) -> ChangeReader:
    taken = {name for name, _ in place.record_columns}
    columns = relation.columns.select([name for name in relation.columns.names if name not in taken])
    settings = DebeziumSettings(
        columns,
        tuple(name for name in relation.key if name in columns),
        cast('Literal["json", "avro"]', side.encoding),
        side.registry is not None,
        _unit(side),
        cast("Decimals | None", side.decimals),
    )
    return ChangeReader(relation, DebeziumReader(settings, store_of(dsn, side.registry)))


def _unit(side: Side) -> EventTimeUnit:
    return next(each for each in get_args(EventTimeUnit) if each == side.time_unit)


def _reader(dsn: str, side: Side | None, name: SideName, columns: Schema, own: list[str], wanted: Schema) -> Reader | None:
    if side is None:
        return None
    # A format with columns by position is read whole; other formats leave out unneeded columns.
    is_named = not side.is_unwrapped and side.format in ("json", "json_lenient", "avro", "protobuf")
    read = [each for each in own if not is_named or each in wanted]
    if is_named and not read and own:
        read = own[:1]
    return reader_of(config_of(side, name, columns.select(read)), store_of(dsn, side.registry))


@dataclass(frozen=True, slots=True)
class PatientReader:
    """Reads for a query. If a registry gives no answer or refuses this service, the read is retried later with secrets that are read again.

    The records are correct in both cases, so none of them is refused.
    """

    inner: RecordReader
    dsn: str
    place: KafkaPlace

    def read(self, keys: pl.Series, values: pl.Series) -> tuple[pl.DataFrame, pl.DataFrame]:
        """See ``RecordReader``.

        Raises:
            SourceUnavailable: the registry cannot be asked now.
        """
        try:
            return self.inner.read(keys, values)
        except RegistryUnavailable as error:
            raise SourceUnavailable(f"topic {self.place.topic!r}: {error}") from error
        except RegistryRefused as error:
            for side in (self.place.key, self.place.value):
                if side is not None and side.registry is not None:
                    forget(self.dsn, side.registry)
            raise SourceUnavailable(f"topic {self.place.topic!r}: {error}; correct the registry's connection") from error


def config_of(side: Side, name: SideName, columns: Schema) -> SideConfig:
    """Return a side's settings for its format."""
    return SideConfig(
        side.format,
        columns,
        name,
        schema=side.schema,
        message=side.message,
        has_registry=side.registry is not None,
        is_unwrapped=side.is_unwrapped,
        delimiter=side.delimiter,
        time_unit=_unit(side),
    )


def forget(dsn: str, name: str) -> None:
    """Drop a registry's client, so that a new one is made."""
    with _LOCK:
        _, kept = _KEPT.pop((dsn, name), (0.0, None))
    if kept is not None:
        kept.close()


def store_of(dsn: str, name: str | None) -> SchemaStore:
    """Return the registry of a stored connection, one for each process.

    Raises:
        SourceUnavailable: the connection does not exist, has another type, or a secret cannot be read here.
    """
    if name is None:
        return NO_REGISTRY
    with _LOCK:
        made_at, kept = _KEPT.get((dsn, name), (0.0, None))
        if kept is not None and time.monotonic() - made_at < KEPT_S:
            return kept
    try:
        with shared_connection(dsn) as connection:
            resolved = load(connection, name, SecretSources.of())
        registry = Registry(settings_of(resolved, ANSWER_S, QUESTION_S))
    except WrongConnection as error:
        raise SourceUnavailable(str(error)) from error
    except (SecretMissing, CertificateUnreadable) as error:
        raise SourceUnavailable(f"connection '{name}': {error}") from error
    with _LOCK:
        _KEPT[dsn, name] = (time.monotonic(), registry)
    return registry

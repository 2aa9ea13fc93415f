"""Topics as a connector of sources: checked before registration, and then known by name and id."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias, cast

import polars as pl
import psycopg

from engine.connections.kafka import KafkaConnection
from engine.connections.registry import RegistryConnection
from engine.connections.secret_sources import SecretSources
from engine.connections.stored import WrongConnection, load
from engine.definition.sources.kafka import HEADER, KafkaConnector, KafkaPlace
from engine.errors import DefinitionInvalid, Problem, SourceUnavailable
from engine.expressions.types.types import ColumnType
from engine.formats.port import FormatInvalid, RegistryRefused, RegistryUnavailable
from engine.log.dropped_feeds import drop_feed
from engine.log.storage import Head, feed_heads
from engine.plan.model import Feed, RelationSchema
from engine.postgres.postgres import Connection, shared_connection
from engine.records.canonical import canonicalise
from engine.records.inferred import Inferred
from engine.sources.control import FeedConflict, ServiceContext
from engine.sources.kafka.brokers.broker_errors import TopicDenied, TopicMissing
from engine.sources.kafka.brokers.fetching.port import Fetched
from engine.sources.kafka.inferring import infer, newest_records
from engine.sources.kafka.records import SOURCE_KIND, read_records
from engine.sources.kafka.sides import topic_reader
from engine.sources.kafka.topic_state import register

TRIED: Final = 20
"""Newest records that are tried. A format is wrong if none of them can be read: single bad records are rejects."""

_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "timestamp": ("timestamp", "bigint"),
    "partition": ("int", "bigint"),
    "offset": ("bigint",),
    "headers": ("map",),
    HEADER: ("string", "bytes"),
}


class KafkaControl:
    """A ``Control`` of topics."""

    def check(self, feed: Feed, site: ServiceContext, relation: RelationSchema | None = None) -> None:
        """See ``Control``. Asks the broker, and reads its newest records."""
        place = cast("KafkaPlace", feed.place)
        if relation is not None:
            _check_record_columns(place, relation)
        dsn = _dsn_of(site)
        _check_connections(dsn, place)
        with _explained(place):
            found = newest_records(dsn, place, 0 if relation is None else TRIED)
            if relation is not None:
                _check_format(dsn, place, relation, found)

    def infer(self, feed: Feed, site: ServiceContext, key: Sequence[str]) -> Inferred:
        """See ``Control``. Asks the registry if there is one, and reads the broker's newest records."""
        place, dsn = cast("KafkaPlace", feed.place), _dsn_of(site)
        _check_connections(dsn, place)
        with _explained(place):
            return infer(dsn, place, key)

    def register(self, connection: Connection, feed: Feed, model: KafkaConnector) -> FeedConflict | None:  # noqa: ARG002 - the feed names all
        register(connection, feed.log_feed)
        return None

    def change(self, connection: Connection, feed: Feed, model: KafkaConnector) -> None:
        """See ``Control``: nothing has to be recorded."""

    def is_empty(self, connection: Connection, feed: Feed) -> bool:  # noqa: ARG002 - the port's
        """See ``Control``: the broker is not asked."""
        return False

    def heads(self, connection: Connection, feeds: Collection[Feed]) -> Mapping[str, Sequence[Head]]:
        """See ``Control``: as of a query's last look."""
        return feed_heads(connection, [feed.log_feed for feed in feeds])

    def delete(self, connection: Connection, feed: Feed) -> None:
        """See ``Control``: the topic stays."""
        drop_feed(connection, feed.log_feed)


def _dsn_of(site: ServiceContext) -> str:
    if site.dsn is None:
        raise SourceUnavailable("the broker cannot be asked here: this process knows no database with connections")
    return site.dsn


@contextmanager
def _explained(place: KafkaPlace) -> Iterator[None]:
    """Add the field and the remedy to errors of a look at the broker."""
    try:
        yield
    except TopicMissing as error:
        raise _refused(
            Problem(
                "/connector/topic", "topic_missing", f"the broker has no topic {place.topic!r}; create it, or correct the name"
            )
        ) from error
    except TopicDenied as error:
        raise _refused(
            Problem(
                "/connector/topic",
                "topic_not_allowed",
                f"the broker does not let this service read {place.topic!r} ({error}); allow READ and DESCRIBE, or name another connection",
            )
        ) from error
    except FormatInvalid as error:
        raise _refused(Problem(_side_of(place), "format_unfit", str(error))) from error
    except RegistryRefused as error:
        raise _refused(Problem(_side_of(place) + "/registry", "registry_refused", str(error))) from error
    except RegistryUnavailable as error:
        raise SourceUnavailable(str(error)) from error


_Kind: TypeAlias = type[KafkaConnection] | type[RegistryConnection]


def _check_connections(dsn: str, place: KafkaPlace) -> None:
    """Refuse a connection that does not exist, or one of another type."""
    named: list[tuple[str, str | None, _Kind]] = [("/connector/connection", place.connection, KafkaConnection)]
    named += [
        (f"/connector/{side}/registry", said.registry, RegistryConnection)
        for side, said in (("key", place.key), ("value", place.value))
        if said is not None
    ]
    for pointer, name, kind in named:
        if name is not None:
            _check_connection(dsn, pointer, name, kind)


def _check_connection(dsn: str, pointer: str, name: str, kind: _Kind) -> None:
    try:
        with shared_connection(dsn) as connection:
            load(connection, name, SecretSources.of()).of_kind(kind)
    except WrongConnection as error:
        raise _refused(Problem(pointer, error.code, str(error))) from error
    except psycopg.Error as error:
        raise SourceUnavailable(f"the connection '{name}' cannot be looked up: {error}") from error


def _check_record_columns(place: KafkaPlace, relation: RelationSchema) -> None:
    problems = []
    for name, what in place.record_columns:
        pointer = f"/connector/record_columns/{name}"
        if name not in relation.columns:
            problems.append(
                Problem(pointer, "unknown_column", f"{name!r} is no column; declare it in `columns`, or leave it out here")
            )
            continue
        kind, allowed = relation.columns[name], _TYPES[HEADER if what.startswith(HEADER) else what]
        if kind.kind not in allowed or (kind.kind == "map" and not _is_of_headers(kind)):
            wanted = "map<string, bytes>" if what == "headers" else " or ".join(allowed)
            problems.append(
                Problem(f"/columns/{name}", "type_mismatch", f"{what} of a record is {wanted}, not {kind}; write that type")
            )
    if problems:
        raise DefinitionInvalid(problems)


def _is_of_headers(kind: ColumnType) -> bool:
    return kind.key is not None and kind.key.kind == "string" and kind.value is not None and kind.value.kind == "bytes"


def _check_format(dsn: str, place: KafkaPlace, relation: RelationSchema, found: Fetched) -> None:
    """Read the newest records, and refuse the definition if none of them can be read."""
    reader = topic_reader(dsn, place, relation)
    if not len(found):
        return
    raw, rejects = read_records(found, reader, relation, place.record_columns, 0)
    accepted, refused = canonicalise(raw, relation, int(found.timestamps.max()), SOURCE_KIND)
    if accepted.height or relation.where is not None:
        return
    every = pl.concat([rejects, refused])
    if not every.height:
        return
    reason, detail = every.row(0, named=True)["reason"], every.row(0, named=True)["detail"]
    raise _refused(
        Problem(
            _side_of(place),
            "format_differs",
            f"none of the {len(found)} newest records of {place.topic!r} can be read so; the first is refused as {reason}: {detail}. "
            "Correct `format`, or the columns and their types",
        )
    )


def _side_of(place: KafkaPlace) -> str:
    return "/connector/value" if place.value is not None else "/connector/key"


def _refused(problem: Problem) -> DefinitionInvalid:
    return DefinitionInvalid([problem])

"""Formats for bodies of appended records: the cutting of a body into payloads, the parameters of its request, and the readers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, cast, get_args

import polars as pl

from engine.definition.record_formats import DEFAULT_DELIMITER, delimiter_of
from engine.definition.relations import EventTimeUnit
from engine.formats.avro.container import read_container
from engine.formats.avro.reader import AvroReader
from engine.formats.bodies.bodies import JSON_TYPES, LINE_TYPES
from engine.formats.bodies.framing import json_values, length_delimited, lines, whole
from engine.formats.debezium.absent import ABSENT, unforgiven
from engine.formats.debezium.fields import DebeziumSettings, Decimals
from engine.formats.debezium.positions import TABLE
from engine.formats.debezium.reader import DebeziumReader
from engine.formats.format_list import reader_of
from engine.formats.json.json_records import BodyMalformed, check_width
from engine.formats.port import NO_REGISTRY, FormatInvalid, Read, SchemaStore, SideConfig
from engine.formats.registry.client import Registry
from engine.formats.shapes import SchemaNotRead
from engine.frames.position_columns import COMMITTED, IS_EXACT, ORIGIN, POSITION
from engine.plan.model import RelationSchema
from engine.records.canonical import MAX_RECORD_BYTES, reject_rows
from engine.records.excerpts import excerpt_of_bytes, excerpts_of

BINARY: Final = "application/octet-stream"
_JSON: Final = (*JSON_TYPES, *LINE_TYPES)
_AVRO: Final = ("application/avro", "avro/binary", "avro/bytes", BINARY)


@dataclass(frozen=True, slots=True)
class BodyOptions:
    """The parameters of a request for its body.

    Attributes:
        format: a name in ``POSTED``.
        media_type: of the body, without parameters.
        options: the given parameters of the format, by name.
    """

    format: str
    media_type: str
    options: tuple[tuple[str, str], ...] = ()

    def option(self, name: str) -> str | None:
        """Return a parameter; None: it is not given."""
        return dict(self.options).get(name)

    @property
    def has_registry(self) -> bool:
        """Whether a schema registry is asked, which may take time."""
        return self.option("registry") is not None


class Posted(NamedTuple):
    """The content of a body.

    Attributes:
        raw: rows for ``canonicalise``; ``_offset`` is the record's index.
        rejects: the other records.
        changes: for change events, for each row of ``raw``: the columns of ``positions_of``, ``_absent``, and perhaps ``_is_named``; None: these
            are no change events.
    """

    raw: pl.DataFrame
    rejects: pl.DataFrame
    changes: pl.DataFrame | None = None


Reads = Callable[[bytes, BodyOptions, RelationSchema, SchemaStore], Posted]


@dataclass(frozen=True, slots=True)
class BodyFormat:
    """A format of bodies.

    Attributes:
        media_types: allowed for a body.
        options: parameters that it uses.
        read: reads a body.
    """

    media_types: tuple[str, ...]
    options: tuple[str, ...]
    read: Reads


def option_faults(asked: BodyOptions) -> Iterator[FormatInvalid]:
    """Yield what is wrong with the parameters that need neither body nor relation: there is no such format, or it does not use one."""
    found = POSTED.get(asked.format)
    if found is None:
        yield FormatInvalid(f"a format is {', '.join(POSTED)}, not {asked.format[:50]!r}", "format")
        return
    takes = f"it takes {', '.join(found.options)}" if found.options else "it takes no further parameter"
    for name, _ in asked.options:
        if name not in found.options:
            yield FormatInvalid(f"`{name}` means nothing to the format {asked.format}; {takes}", name)


def read_posted(body: bytes, asked: BodyOptions, relation: RelationSchema, store: SchemaStore = NO_REGISTRY) -> Posted:
    """Read a body.

    Raises:
        FormatInvalid: the format does not fit the relation.
        BodyMalformed: the body cannot be cut into records.
        RegistryUnavailable, RegistryRefused: a schema is not available.
    """
    return POSTED[asked.format].read(body, asked, relation, store)


def _side(asked: BodyOptions, relation: RelationSchema) -> SideConfig:
    delimiter = asked.option("delimiter")
    try:
        sign = DEFAULT_DELIMITER if delimiter is None else delimiter_of(delimiter)
    except ValueError as error:
        raise FormatInvalid(str(error), "delimiter") from error
    return SideConfig(
        asked.format, relation.columns, has_registry=asked.has_registry, delimiter=sign, is_unwrapped=asked.format in _SINGLE
    )


def _of_payloads(cut: Callable[[bytes, BodyOptions], pl.Series]) -> Reads:
    """Return a reader of payloads cut by ``cut``. A body with a schema's number has one payload, because it has no end mark."""

    def read(body: bytes, asked: BodyOptions, relation: RelationSchema, store: SchemaStore) -> Posted:
        reader = reader_of(_side(asked, relation), store)
        payloads = whole(body) if asked.has_registry else cut(body, asked)
        return Posted(*_read(payloads, relation, reader.read))

    return read


def _read(payloads: pl.Series, relation: RelationSchema, read: Callable[[pl.Series], Read]) -> Read:
    """Read the payloads that are not too long."""
    check_width(len(payloads), relation)
    long = payloads.bin.size() > MAX_RECORD_BYTES
    if not long.any():
        return read(payloads)
    detail = f"a record has more than {MAX_RECORD_BYTES:,} bytes"
    refused = reject_rows(
        [(place, "record_too_long", detail, excerpt_of_bytes(payloads[place][:1024])) for place in long.arg_true().to_list()]
    )
    places = (~long).arg_true().cast(pl.Int64)
    raw, rejects = read(payloads.filter(~long))
    return Read(
        raw.with_columns(places.gather(raw.get_column("_offset")).alias("_offset")),
        pl.concat([rejects.with_columns(places.gather(rejects.get_column("offset")).alias("offset")), refused]).sort("offset"),
    )


def _avro(body: bytes, asked: BodyOptions, relation: RelationSchema, store: SchemaStore) -> Posted:
    if asked.has_registry:
        return _framed(body, asked, relation, store)
    try:
        schema, payloads = read_container(body)
    except SchemaNotRead as error:
        raise BodyMalformed(f"the schema of the file: {error}") from error
    return Posted(*_read(payloads, relation, AvroReader(relation.columns, schema).read))


def _protobuf(body: bytes, asked: BodyOptions, relation: RelationSchema, store: SchemaStore) -> Posted:
    subject = asked.option("subject")
    if not asked.has_registry:
        raise FormatInvalid(
            "protobuf needs a schema: name the connection of a schema registry, for one payload behind a schema's number, and `subject` for "
            "messages behind their lengths",
            "registry",
        )
    if subject is None:
        if asked.option("message") is not None:
            raise FormatInvalid(
                "a payload behind a schema's number says itself which message it is; give `subject`, or leave it out", "message"
            )
        return _framed(body, asked, relation, store)
    if not isinstance(store, Registry):
        raise FormatInvalid("there is no registry that could have it", "subject")
    registered = store.latest(subject)
    if registered is None:
        raise FormatInvalid(f"the registry has no subject {subject[:100]!r}; register its schema first", "subject")
    if registered.kind != "PROTOBUF":
        raise FormatInvalid(f"the subject {subject[:100]!r} holds schemas of {registered.kind}", "subject")
    config = SideConfig(
        "protobuf",
        relation.columns,
        schema=registered.text,
        references=registered.references,
        message=asked.option("message") or "",
    )
    return Posted(*_read(length_delimited(body), relation, reader_of(config).read))


IS_NAMED: Final = "_is_named"
"""Whether the request names the database table of a change; absent if the request names no table."""

MAX_ORIGINS: Final = 16
"""The most databases in one body's changes: the append waits while the positions of each database's keys are read."""


def _debezium(body: bytes, asked: BodyOptions, relation: RelationSchema, store: SchemaStore) -> Posted:
    if relation.kind != "table":
        raise FormatInvalid("change events are of a table's rows; send them to /v1/tables/{name}/records", "format")
    encoding = asked.option("encoding") or "json"
    if encoding not in ("json", "avro"):
        raise FormatInvalid(f"change events come as json or avro, not as {encoding[:20]!r}", "encoding")
    unit, decimals = asked.option("time_unit") or "ms", asked.option("decimals")
    if unit not in ("ms", "us", "ns"):
        raise FormatInvalid(f"Debezium counts ms, us or ns, not {unit[:20]!r}", "time_unit")
    if decimals is not None and decimals not in get_args(Decimals):
        raise FormatInvalid(f"decimals are {' or '.join(get_args(Decimals))}, not {decimals[:20]!r}", "decimals")
    if encoding == "avro" and not asked.has_registry:
        raise FormatInvalid("change events in avro name their schemas: name the connection of a schema registry", "registry")
    if encoding == "avro" and (given := next((name for name in ("time_unit", "decimals") if asked.option(name)), None)):
        raise FormatInvalid(f"{given} is of JSON; in avro the schemas say what values are", given)
    settings = DebeziumSettings(
        relation.columns,
        relation.key,
        "avro" if encoding == "avro" else "json",
        asked.has_registry,
        cast("EventTimeUnit", unit),
        cast("Decimals | None", decimals),
    )
    reader = DebeziumReader(settings, store)
    payloads = whole(body) if asked.has_registry or not body else json_values(body, asked.media_type)
    check_width(len(payloads), relation)
    rows = reader.rows(_without_tombstones(payloads))
    found, rejects = _of_few_origins(rows.raw, rows.rejects)
    raw = found.rename({"$event_time_ms": "_ts"}) if relation.event_time is None else found
    control = [POSITION, COMMITTED, ORIGIN, IS_EXACT, TABLE, ABSENT]
    absent = unforgiven(found.get_column(ABSENT), _allowed(asked.option("absent"), relation))
    beside = found.select(control).with_columns(absent)
    if (tables := asked.option("source_table")) is not None:
        is_named = found.get_column(TABLE).is_in(tables.split(","))
        beside = beside.with_columns(is_named.fill_null(value=False).alias(IS_NAMED))
    return Posted(raw.drop(control), rejects, beside)


def _allowed(said: str | None, relation: RelationSchema) -> list[str]:
    """Return the columns that changes may lack."""
    names = [] if said is None else said.split(",")
    if (unknown := next((name for name in names if name not in relation.columns.names), None)) is not None:
        raise FormatInvalid(
            f"the table has no column {unknown[:100]!r}; name columns that changes may lack, with commas", "absent"
        )
    return names


def _of_few_origins(raw: pl.DataFrame, rejects: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Refuse the changes of all databases but the first ones."""
    origins = raw.get_column(ORIGIN)
    is_one = origins.is_in(origins.unique(maintain_order=True).head(MAX_ORIGINS).to_list())
    if is_one.all():
        return raw, rejects
    beyond = raw.filter(~is_one).unique("_offset", keep="last", maintain_order=True)  # a changed key makes two rows of one event
    detail = f"one body may hold changes of {MAX_ORIGINS} databases (connector, name and db of their sources), and this one is of another"
    texts = excerpts_of(beyond.select(name for name in beyond.columns if not name.startswith("_")))
    places = beyond.get_column("_offset").to_list()
    refused = reject_rows([(place, "too_many_origins", detail, text) for place, text in zip(places, texts, strict=True)])
    return raw.filter(is_one), pl.concat([rejects, refused]).sort("offset", maintain_order=True)


def _without_tombstones(payloads: pl.Series) -> pl.Series:
    """Drop tombstones, which Debezium's sinks send as an empty body, or as JSON's null."""
    sizes = payloads.bin.size()
    is_tombstone = (sizes == 0) | (sizes == len(_NULL)) & payloads.bin.starts_with(_NULL)
    return payloads.set(is_tombstone, None) if is_tombstone.any() else payloads


_framed: Final = _of_payloads(lambda body, _asked: whole(body))
_NULL: Final = b"null"
_SINGLE: Final = ("string", "bytes", "kafka")

POSTED: Final[dict[str, BodyFormat]] = {
    "json": BodyFormat((*_JSON, BINARY), ("registry",), _of_payloads(lambda body, asked: json_values(body, asked.media_type))),
    "json_lenient": BodyFormat(
        (*_JSON, BINARY), ("registry",), _of_payloads(lambda body, asked: json_values(body, asked.media_type))
    ),
    "avro": BodyFormat(_AVRO, ("registry",), _avro),
    "protobuf": BodyFormat(
        ("application/x-protobuf", "application/protobuf", BINARY), ("registry", "subject", "message"), _protobuf
    ),
    "delimited": BodyFormat(("text/csv", BINARY), ("delimiter",), _of_payloads(lambda body, _asked: lines(body))),
    "string": BodyFormat((BINARY,), (), _of_payloads(lambda body, _asked: lines(body))),
    "bytes": BodyFormat((BINARY,), (), _of_payloads(lambda body, _asked: whole(body))),
    "kafka": BodyFormat((BINARY,), (), _of_payloads(lambda body, _asked: whole(body))),
    "debezium": BodyFormat(
        (*_JSON, *_AVRO), ("registry", "encoding", "time_unit", "decimals", "absent", "source_table"), _debezium
    ),
}
"""By name."""

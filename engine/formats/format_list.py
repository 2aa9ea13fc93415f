"""The formats of keys and values, by name. A new one is one entry here, with its reader and, if results can be written in it, its writer."""

from __future__ import annotations

from typing import Final

from engine.formats.avro.reader import avro_reader
from engine.formats.avro.writer import avro_writer
from engine.formats.delimited.delimited import delimited_reader, delimited_writer
from engine.formats.json.json_reader import json_reader
from engine.formats.json.json_writer import json_writer
from engine.formats.lenient.lenient_json import lenient_json_reader
from engine.formats.plain import bytes_reader, bytes_writer, kafka_reader, kafka_writer, string_reader, string_writer
from engine.formats.port import NO_REGISTRY, Format, FormatInvalid, Reader, SchemaStore, SideConfig, Writer
from engine.formats.protobuf.reader import protobuf_reader
from engine.formats.protobuf.writer import protobuf_writer

FORMATS: Final[dict[str, Format]] = {
    each.name: each
    for each in (
        Format("json", json_reader, json_writer, takes_registry=True),
        Format("json_lenient", lenient_json_reader, json_writer, takes_registry=True),
        Format("avro", avro_reader, avro_writer, takes_registry=True),
        Format("protobuf", protobuf_reader, protobuf_writer, takes_registry=True),
        Format("delimited", delimited_reader, delimited_writer),
        Format("string", string_reader, string_writer),
        Format("bytes", bytes_reader, bytes_writer),
        Format("kafka", kafka_reader, kafka_writer),
    )
}


def reader_of(config: SideConfig, store: SchemaStore = NO_REGISTRY) -> Reader:
    """Return the reader of a side.

    Raises:
        FormatInvalid: the settings do not fit together.
    """
    return _format(config).reader(config, store)


def writer_of(config: SideConfig, store: SchemaStore = NO_REGISTRY) -> Writer:
    """Return the writer of a side.

    Raises:
        FormatInvalid: the settings do not fit together.
    """
    return _format(config).writer(config, store)


def _format(config: SideConfig) -> Format:
    found = FORMATS.get(config.format)
    if found is None:
        raise FormatInvalid(f"a format is {', '.join(FORMATS)}, not {config.format!r}")
    if config.has_registry and not found.takes_registry:
        raise FormatInvalid(f"{config.format} has no schema, so that `registry` means nothing here; leave it out")
    return found

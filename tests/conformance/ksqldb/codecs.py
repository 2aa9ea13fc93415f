"""The formats that can be read and written, by name. A new one is one entry here, and one in ``engine.definition.record_formats``."""

from __future__ import annotations

from typing import Final

import polars as pl

from engine.definition.record_formats import JSON
from engine.formats.lenient.json_format import Layout, Payload, decode
from engine.formats.lenient.lenient import json_text
from tests.conformance.ksqldb.codec import Codec
from tests.conformance.ksqldb.delimited import DELIMITED_CODEC
from tests.conformance.ksqldb.kafka import KAFKA_CODEC
from tests.conformance.ksqldb.plain_values import plain_column


def _encode(frame: pl.DataFrame, layout: Layout) -> list[Payload]:
    """Write rows; see ``Codec``. A single bare null is no payload."""
    columns = [plain_column(frame.get_column(name), declared) for name, declared in layout.columns.items()]
    if layout.is_bare:
        return [None if value is None else json_text(value).encode() for value in columns[0]]
    names = [json_text(name) + ":" for name in layout.columns.names]
    rows = zip(*columns, strict=True) if columns else (() for _ in range(frame.height))
    return [
        ("{" + ",".join(name + json_text(value) for name, value in zip(names, row, strict=True)) + "}").encode() for row in rows
    ]


JSON_CODEC: Final = Codec(JSON, decode, _encode)
CODECS: Final[dict[str, Codec]] = {each.format.name: each for each in (JSON_CODEC, DELIMITED_CODEC, KAFKA_CODEC)}

"""The formats that can be read and written, by name. A new one is one entry here, and one in ``engine.definition.record_formats``."""

from __future__ import annotations

from typing import Final

from engine.formats.lenient.json_format import JSON_CODEC
from engine.formats.lenient.model import Codec
from tests.conformance.ksqldb.delimited import DELIMITED_CODEC
from tests.conformance.ksqldb.kafka import KAFKA_CODEC

CODECS: Final[dict[str, Codec]] = {each.format.name: each for each in (JSON_CODEC, DELIMITED_CODEC, KAFKA_CODEC)}

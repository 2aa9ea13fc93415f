"""The formats that can be read and written, by name. A new one is one entry here, and one in ``engine.definition.record_formats``."""

from __future__ import annotations

from typing import Final

from engine.connectors.formats.delimited import DELIMITED_CODEC
from engine.connectors.formats.json_format import JSON_CODEC
from engine.connectors.formats.kafka import KAFKA_CODEC
from engine.connectors.formats.model import Codec

CODECS: Final[dict[str, Codec]] = {each.format.name: each for each in (JSON_CODEC, DELIMITED_CODEC, KAFKA_CODEC)}

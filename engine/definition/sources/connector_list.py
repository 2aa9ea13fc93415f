"""The connectors of sources, by the models that definitions are read with: one entry each.

The models stand in the connectors' folders, above this layer; they import nothing of it but what definitions are made of (``make lint``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, get_args

from pydantic import Field

from engine.definition.sources.connector import ConnectorModel
from engine.definition.sources.files import FilesConnector
from engine.definition.sources.kafka import KafkaConnector
from engine.definition.sources.log import LogConnector

_Any = LogConnector | FilesConnector | KafkaConnector

Connector = Annotated[_Any, Field(discriminator="type")]

MODELS: Final[Mapping[str, type[ConnectorModel]]] = {model.name(): model for model in get_args(_Any)}

DEFAULT: Final = LogConnector
"""What a definition means that names none."""

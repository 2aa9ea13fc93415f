"""The outputs of results, by the models that definitions are read with: one entry each, beside that in ``engine.connectors.delivery_kinds``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, get_args

from pydantic import Field

from engine.connectors.delta.delivery_definition import DeltaDelivery
from engine.connectors.files.delivery_definition import FilesDelivery
from engine.connectors.kafka.delivery_definition import KafkaDelivery
from engine.definition.delivery import DeliveryModel

_Any = KafkaDelivery | FilesDelivery | DeltaDelivery

Delivery = Annotated[_Any, Field(discriminator="type")]

DELIVERIES: Final[Mapping[str, type[DeliveryModel]]] = {model.name(): model for model in get_args(_Any)}

"""The outputs of results, by the models that definitions are read with: one entry each, beside that in ``engine.deliveries.delivery_kinds``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, get_args

from pydantic import Field

from engine.definition.deliveries.delivery import DeliveryModel
from engine.definition.deliveries.delta import DeltaDelivery
from engine.definition.deliveries.files import FilesDelivery
from engine.definition.deliveries.kafka import KafkaDelivery

_Any = KafkaDelivery | FilesDelivery | DeltaDelivery

Delivery = Annotated[_Any, Field(discriminator="type")]

DELIVERIES: Final[Mapping[str, type[DeliveryModel]]] = {model.name(): model for model in get_args(_Any)}

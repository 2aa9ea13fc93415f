"""The outputs of results, by name: one entry each beside that in ``engine.definition.deliveries.delivery_list``. README has the recipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from engine.deliveries.deliveries import DeliveryKind
from engine.deliveries.delta.delivery import DELTA_DELIVERY
from engine.deliveries.files import FILES_DELIVERY
from engine.deliveries.kafka.delivery import KAFKA_DELIVERY

DELIVERY_KINDS: Final[Mapping[str, DeliveryKind]] = {"kafka": KAFKA_DELIVERY, "files": FILES_DELIVERY, "delta": DELTA_DELIVERY}

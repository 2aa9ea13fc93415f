"""The outputs of results, by name: one entry each beside that in ``engine.definition.delivery_list``. README has the recipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from engine.connectors.deliveries import DeliveryKind
from engine.connectors.delta.delivery import DELTA_DELIVERY
from engine.connectors.files.delivery import FILES_DELIVERY
from engine.connectors.kafka.delivery import KAFKA_DELIVERY

DELIVERY_KINDS: Final[Mapping[str, DeliveryKind]] = {"kafka": KAFKA_DELIVERY, "files": FILES_DELIVERY, "delta": DELTA_DELIVERY}

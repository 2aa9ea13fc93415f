"""A stage that ends the process it runs in, for queries of one name."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

from engine.connectors.packets import Packet
from engine.spark.stages import StageWork

POISONOUS = "poisonous"


class PoisonedWork(StageWork):
    """The work of ``StageWork``; of the query ``POISONOUS`` it kills its worker as soon as there is a record."""

    def done(self, packets: Iterator[Packet]) -> Iterator[Packet]:
        for packet in super().done(packets):
            if self._plan.query == POISONOUS and packet.kind == "data":
                os.kill(os.getpid(), signal.SIGKILL)
            yield packet

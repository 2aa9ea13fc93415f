"""How a query is executed, alone or beside others, and what one of its batches may take in each mode."""

from __future__ import annotations

from enum import Enum
from typing import Final

from engine.runtime.limits.batch_size import BatchLimit

SHARED_LIMIT: Final = BatchLimit(20_000, 8 << 20)
"""Bound of one query's batch in a shared slot: the other queries wait for it."""

SHARED_EMITTED: Final = 64 << 20
"""Approximate bytes that one query's batch may emit in a shared slot, eight times its input. The driver holds this for a whole cycle."""

OWN_EMITTED: Final = 1 << 30
"""Approximate bytes that each task of a query in its own slot may emit, at most four times what its batch reads."""


class ExecutionMode(Enum):
    """A query shares a slot, has a dedicated one with large batches, or an isolated one with small batches because it may end its worker."""

    SHARED = "shared"
    DEDICATED = "dedicated"
    ISOLATED = "isolated"

"""A query as its slot sees it: the port between ``slot`` and ``runner``, and what a batch may take in which kind of slot."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, Protocol

from engine.postgres.sink_link import SinkLink
from engine.runtime.blob_files import BlobFolder
from engine.runtime.limits.batch_size import BatchLimit
from engine.runtime.planning.source_spec import SourceSpec
from engine.runtime.stages import StageWork
from engine.spark.streams.committing import Committing

SHARED_LIMIT: Final = BatchLimit(20_000, 8 << 20)
"""Of the batch of one member of a shared slot: the others wait for it."""

SHARED_EMITTED: Final = 64 << 20
"""About as much as one member's batch may emit there, eight times what it reads: the driver holds that of a whole round."""

OWN_EMITTED: Final = 1 << 30
"""The same of each task of a query in a slot of its own, four times what its batch reads at most."""


class SlotMode(Enum):
    """How a query is carried: with others; alone with large batches; alone with batches as if it shared, since it may end its worker."""

    SHARED = "shared"
    DEDICATED = "dedicated"
    ISOLATED = "isolated"


class Member(Committing, Protocol):
    """A query, as its slot sees it."""

    def board(self, link: SinkLink, aside: BlobFolder | None, ride: SlotMode, cores: int) -> SourceSpec:
        """Say what to plan and to do from the last commit on.

        Args:
            link: over which its batches are committed.
            aside: where large blobs go.
            ride: how it is carried.
            cores: see ``SourceSpec``.
        """

    def stages(self, batch_id: int) -> Sequence[StageWork]:
        """Return what its stages do in a batch."""

    @property
    def is_overlapped(self) -> bool:
        """Whether a batch may be read while the one before it is committed."""

    @property
    def parallel(self) -> int:
        """How many tasks of Spark do a stage of a large batch."""

    @property
    def is_resized(self) -> bool:
        """Whether its next batch shall have another bound than it boarded with."""

    @property
    def is_active(self) -> bool:
        """Whether it has neither failed nor been stopped."""

    def put_off(self) -> None:
        """Take note that its batch was not begun, since its round had emitted enough: it then boards anew."""

    def goes_on_after(self, error: BaseException) -> bool:
        """Whether a batch that failed is to be tried again with less input: it then boards anew."""

"""The port between ``slot`` and ``runner``: a query as its slot sees it, and what its batches may take in each kind of slot."""

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
"""Bound of one query's batch in a shared slot: the other queries wait for it."""

SHARED_EMITTED: Final = 64 << 20
"""Approximate bytes that one query's batch may emit in a shared slot, eight times its input. The driver holds this for a whole cycle."""

OWN_EMITTED: Final = 1 << 30
"""Approximate bytes that each task of a query in its own slot may emit, at most four times what its batch reads."""


class SlotMode(Enum):
    """A query shares a slot, has a dedicated one with large batches, or an isolated one with small batches because it may end its worker."""

    SHARED = "shared"
    DEDICATED = "dedicated"
    ISOLATED = "isolated"


class Member(Committing, Protocol):
    """A query, as its slot sees it."""

    def board(self, link: SinkLink, aside: BlobFolder | None, ride: SlotMode, cores: int) -> SourceSpec:
        """Return what to plan and to do from the last commit on.

        Args:
            link: for the commits of its batches.
            aside: folder for large blobs.
            ride: the kind of slot.
            cores: see ``SourceSpec``.
        """

    def stages(self, batch_id: int) -> Sequence[StageWork]:
        """Return the work of its stages in a batch."""

    @property
    def is_overlapped(self) -> bool:
        """Whether a batch may be read while the one before it is committed."""

    @property
    def parallel(self) -> int:
        """How many Spark tasks do a stage of a large batch."""

    @property
    def is_resized(self) -> bool:
        """Whether its next batch has another bound than the bound at ``board``."""

    @property
    def is_active(self) -> bool:
        """Whether it has neither failed nor stopped."""

    def postponed(self) -> None:
        """Record that its batch did not begin, because its cycle had emitted enough. The query is then prepared again."""

    def goes_on_after(self, error: BaseException) -> bool:
        """Whether to retry a failed batch with less input. The query is then prepared again."""

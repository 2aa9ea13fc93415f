"""The port between ``slot`` and ``running_query``: a query as its slot sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from engine.postgres.sink_link import SinkLink
from engine.runtime.blob_files import BlobFolder
from engine.runtime.launches.committing import Committing
from engine.runtime.limits.execution_mode import ExecutionMode
from engine.runtime.planning.source_spec import SourceSpec
from engine.runtime.stages import StageWork


class SlotQuery(Committing, Protocol):
    """A query, as its slot sees it. ``LaunchedQuery`` says what each method does."""

    def resume(self, link: SinkLink, blobs: BlobFolder | None, mode: ExecutionMode, cores: int) -> SourceSpec: ...

    def stages(self, batch_id: int) -> Sequence[StageWork]: ...

    @property
    def is_overlapped(self) -> bool: ...

    @property
    def parallel(self) -> int:
        """How many Spark tasks do a stage of a large batch."""

    @property
    def is_resized(self) -> bool: ...

    @property
    def is_active(self) -> bool: ...

    def postponed(self) -> None: ...

    def shrink_to_retry(self, error: BaseException) -> bool: ...

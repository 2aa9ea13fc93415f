"""Committing the batches of a cycle: light batches of several queries share a transaction, every other batch has its own.

A shared transaction is committed as a whole or not at all. It fails if one query is fenced, has a value that cannot be written, or meets
a foreign lock. Then each batch is committed alone, so a query that fails loses only its own batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from engine.commit.sink import Draft, commit_together
from engine.commit.staging import is_inline
from engine.errors import CommitRefused, SinkUnavailable
from engine.postgres.postgres import SinkLink
from engine.sources.packets import Packet

MAX_SHARED: Final = 32
"""The most queries whose batches share a transaction: it waits once for the disk, and holds their rows for about ten milliseconds."""

_HEAVY: Final = frozenset({"late", "reject", "replayed"})
"""Kinds of packets whose statements wait for answers, or whose tables others write too."""


class Committing(Protocol):
    """The commits of a query."""

    def commit(self, packets: Sequence[Packet], phases_ms: Mapping[str, int]) -> BaseException | None:
        """Commit a batch; return the error, which the query also keeps."""

    def drafting(self, packets: Sequence[Packet], phases_ms: Mapping[str, int]) -> AbstractContextManager[Draft | None]:
        """Lock the query and give the batch as it will be committed; None if there is nothing left to commit."""

    def record_committed(self, draft: Draft, phases_ms: Mapping[str, int], together: int) -> BaseException | None:
        """Record a batch that was committed with others; return the error if the query ends with it, which the query also keeps.

        Args:
            draft: the batch.
            phases_ms: of the batch before.
            together: how many batches shared the transaction: each counts a share of the time.
        """

    def fail(self, error: BaseException) -> None:
        """Record the error that ended the query."""


M = TypeVar("M", bound=Committing)


@dataclass(frozen=True, slots=True)
class QueryBatch(Generic[M]):
    """One query's part of a cycle."""

    query: M
    packets: Sequence[Packet]
    phases_ms: Mapping[str, int]

    @property
    def is_light(self) -> bool:
        """Whether it may share a transaction, judging by its packets."""
        made = [packet for packet in self.packets if packet.kind in ("data", "opened")]
        is_small = is_inline(sum(packet.rows for packet in made), sum(len(packet.blob) for packet in made))
        return is_small and all(packet.kind not in _HEAVY for packet in self.packets)


def commit_cycle(link: SinkLink, batches: Sequence[QueryBatch[M]]) -> Iterator[tuple[QueryBatch[M], BaseException | None]]:
    """Commit the batches of a cycle; yield each with the error if it was not committed, else None."""
    unavailable: BaseException | None = None
    light = [batch for batch in batches if batch.is_light]
    alone = [batch for batch in batches if not batch.is_light]
    for first in range(0, len(light), MAX_SHARED):
        some = light[first : first + MAX_SHARED]
        done = {} if unavailable is not None or len(some) == 1 else _commit_shared(link, some)
        for place, batch in enumerate(some):
            if place in done:
                unavailable = unavailable or _unavailable(done[place])
                yield batch, done[place]
            else:
                error = _alone(batch, unavailable)
                unavailable = unavailable or _unavailable(error)
                yield batch, error
    for batch in alone:
        error = _alone(batch, unavailable)
        unavailable = unavailable or _unavailable(error)
        yield batch, error


def _alone(batch: QueryBatch[M], unavailable: BaseException | None) -> BaseException | None:
    if unavailable is None:
        return batch.query.commit(batch.packets, batch.phases_ms)
    batch.query.fail(unavailable)  # nobody else waits for the database in this cycle
    return unavailable


def _unavailable(error: BaseException | None) -> BaseException | None:
    """Return an error that every other commit of the cycle would meet too."""
    return error if isinstance(error, SinkUnavailable) and not isinstance(error, CommitRefused) else None


def _commit_shared(link: SinkLink, batches: Sequence[QueryBatch[M]]) -> dict[int, BaseException | None]:
    """Commit batches in one transaction; return the results by place. Batches without a result have to be committed alone."""
    with ExitStack() as held:
        drafts: dict[int, Draft] = {}
        for place, batch in enumerate(batches):
            try:
                draft = held.enter_context(batch.query.drafting(batch.packets, batch.phases_ms))
            except Exception:  # noqa: BLE001, S112 - its own commit meets the error again, and ends this query alone
                continue
            if draft is not None and draft.is_light:
                drafts[place] = draft
        try:
            if len(drafts) < 2 or not commit_together(link, list(drafts.values())):
                return {}
        except SinkUnavailable as error:
            lost = error
        else:
            return {
                place: batches[place].query.record_committed(draft, batches[place].phases_ms, len(drafts))
                for place, draft in drafts.items()
            }
    for place in drafts:
        batches[place].query.fail(lost)
    return dict.fromkeys(drafts, lost)

"""Committing the batches of a round: light ones of several members share a transaction, each of the others has one of its own.

What shares a transaction is committed as a whole or not at all. Where it is not, since one of them is fenced, has a value that cannot be written
or meets somebody's lock, each is committed alone: so a member that fails loses its own batch and no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from engine.commit.sink import Draft, commit_together
from engine.commit.staging import is_inline
from engine.errors import CommitRefused, SinkUnavailable
from engine.postgres.sink_link import SinkLink
from engine.sources.packets import Packet

TOGETHER: Final = 32
"""Members whose batches share a transaction: it waits once for the disk, and holds their rows for some ten milliseconds."""

_HEAVY: Final = frozenset({"late", "reject", "replayed"})
"""Kinds of packets that are written with statements whose answers are waited for, or that others write as well."""


class Committing(Protocol):
    """A member, as far as its commits are concerned."""

    def commit(self, packets: Sequence[Packet], phases_ms: Mapping[str, int]) -> BaseException | None:
        """Commit a batch; returns why that failed, which the member remembers."""

    def drafting(self, packets: Sequence[Packet], phases_ms: Mapping[str, int]) -> AbstractContextManager[Draft | None]:
        """Hold the member still and give the batch as it is to be committed; None where there is nothing to commit any more."""

    def note_committed(self, draft: Draft, phases_ms: Mapping[str, int], together: int) -> BaseException | None:
        """Take note of a batch that was committed with others; returns why the member ends with it, which it remembers.

        Args:
            draft: the batch.
            phases_ms: of the batch before.
            together: how many batches: each has a share of the time.
        """

    def fail(self, error: BaseException) -> None:
        """Take note of what ended it."""


M = TypeVar("M", bound=Committing)


@dataclass(frozen=True, slots=True)
class MemberBatch(Generic[M]):
    """What a round brings of one member."""

    member: M
    packets: Sequence[Packet]
    phases_ms: Mapping[str, int]

    @property
    def is_light(self) -> bool:
        """Whether it may share a transaction, as far as packets tell."""
        made = [packet for packet in self.packets if packet.kind in ("data", "opened")]
        is_small = is_inline(sum(packet.rows for packet in made), sum(len(packet.blob) for packet in made))
        return is_small and all(packet.kind not in _HEAVY for packet in self.packets)


def commit_round(link: SinkLink, batches: Sequence[MemberBatch[M]]) -> Iterator[tuple[MemberBatch[M], BaseException | None]]:
    """Commit the batches of a round; gives each with the reason why it was not committed, None where it was."""
    unavailable: BaseException | None = None
    light = [batch for batch in batches if batch.is_light]
    alone = [batch for batch in batches if not batch.is_light]
    for first in range(0, len(light), TOGETHER):
        some = light[first : first + TOGETHER]
        done = {} if unavailable is not None or len(some) == 1 else _together(link, some)
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


def _alone(batch: MemberBatch[M], unavailable: BaseException | None) -> BaseException | None:
    if unavailable is None:
        return batch.member.commit(batch.packets, batch.phases_ms)
    batch.member.fail(unavailable)  # nobody else waits for the database in this round
    return unavailable


def _unavailable(error: BaseException | None) -> BaseException | None:
    """Return what every other commit of the round would meet, too."""
    return error if isinstance(error, SinkUnavailable) and not isinstance(error, CommitRefused) else None


def _together(link: SinkLink, batches: Sequence[MemberBatch[M]]) -> dict[int, BaseException | None]:
    """Commit batches in one transaction; returns what became of them by their place; those that are absent are to be committed alone."""
    with ExitStack() as held:
        drafts: dict[int, Draft] = {}
        for place, batch in enumerate(batches):
            try:
                draft = held.enter_context(batch.member.drafting(batch.packets, batch.phases_ms))
            except Exception:  # noqa: BLE001, S112 - its own commit meets it again, and ends this member alone
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
                place: batches[place].member.note_committed(draft, batches[place].phases_ms, len(drafts))
                for place, draft in drafts.items()
            }
    for place in drafts:
        batches[place].member.fail(lost)
    return dict.fromkeys(drafts, lost)

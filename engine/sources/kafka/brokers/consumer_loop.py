"""Continuous reading of a topic's partitions: the records between two offsets, from any fetcher."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

import numpy as np
from confluent_kafka import KafkaError

from engine.sources.kafka.brokers.broker_errors import BEING_ELECTED, OUT_OF_RANGE, UNIMPORTANT, BrokerErrors, OffsetOutOfRange
from engine.sources.kafka.brokers.fetching.port import Fault, Fetched, Fetcher

SILENT_S: Final = 20.0
"""Reading fails after this time without a record or a report, if records are known to exist: the connection may be half open."""

RESTING_S: Final = 30.0
"""A partition unread for this time is no longer fetched, because nobody may ask for it again."""

STEP_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class PolledRecords:
    """The result of one look.

    Attributes:
        records: in the order of offsets.
        position: after them, and after offsets without records.
    """

    records: Fetched
    position: int


@dataclass(slots=True)
class _Fetching:
    """A partition that is being fetched.

    Attributes:
        position: where the next call continues without a restart.
        ahead: records prefetched after it.
        used_at: by ``time.monotonic``.
    """

    position: int
    ahead: Fetched | None
    used_at: float


class ConsumerLoop:
    """Takes records from several partitions. For one thread at a time.

    Args:
        fetcher: of a topic.
        troubles: records errors of brokers.
        fetch_bytes: of one answer of a broker, as the fetcher requests it.
    """

    def __init__(self, fetcher: Fetcher, troubles: BrokerErrors, fetch_bytes: int) -> None:
        self._fetcher, self._troubles, self.fetch_bytes = fetcher, troubles, fetch_bytes
        self._lanes: dict[int, _Fetching] = {}
        self.made_at = self._used_at = time.monotonic()

    @property
    def is_resting(self) -> bool:
        """Whether nobody has taken records for a while."""
        return time.monotonic() - self._used_at > RESTING_S

    def close(self) -> None:
        """Close the connections to brokers."""
        self._fetcher.close()

    def is_at(self, partition: int, start: int) -> bool:
        """Whether it continues at ``start`` without a restart."""
        lane = self._lanes.get(partition)
        return lane is not None and lane.position == start

    def take(self, partition: int, start: int, end: int, most: int) -> PolledRecords:
        """Take some of the records in ``[start, end)``: the available ones, at least one record or the end.

        Raises:
            OffsetOutOfRange: ``start`` does not exist any more, or not yet.
            SourceUnavailable: no record comes.
        """
        lane = self._lanes.pop(partition, None)  # after any failure the next call restarts the partition
        self._rest()
        if lane is None or lane.position != start:
            self._troubles.forget()
            self._fetcher.begin(partition, start)
            lane = _Fetching(start, None, 0.0)
        taken, has_stopped = self._taken(lane, partition, end, most)
        if not has_stopped:
            lane.position, lane.used_at = taken.position, time.monotonic()
            self._used_at = lane.used_at
            self._lanes[partition] = lane
        return taken

    def _taken(self, lane: _Fetching, partition: int, end: int, most: int) -> tuple[PolledRecords, bool]:
        start, silent_at = lane.position, time.monotonic() + SILENT_S
        while True:
            faults: tuple[Fault, ...] = ()
            if lane.ahead is not None:
                records, lane.ahead = lane.ahead, None
            else:
                polled = self._fetcher.poll(partition, max(1, min(most, end - start)), STEP_S)
                records, faults = polled.records, polled.faults
            position = int(records.offsets[-1]) + 1 if len(records) else start
            has_stopped, ended = self._after_faults(faults, partition, start, has_records=len(records) > 0)
            position = max(position, ended)
            if len(records) and records.offsets[-1] >= end:
                # Records from the end on belong to the next call, which continues there.
                place = int(np.searchsorted(records.offsets, end))
                lane.ahead, records, position = records.part(place, len(records)), records.part(0, place), end
            if len(records) or position > start:
                return PolledRecords(records, min(position, end)), has_stopped
            if self._troubles.is_denied or time.monotonic() > silent_at:
                raise self._troubles.silent(f"partition {partition}: no record comes from the broker")

    def _after_faults(self, faults: tuple[Fault, ...], partition: int, start: int, *, has_records: bool) -> tuple[bool, int]:
        """Return whether the partition has to be restarted before more records come, and its reported end, else 0."""
        has_stopped, ended = False, 0
        for fault in faults:
            code = fault.error.code()
            if code == KafkaError._PARTITION_EOF:  # noqa: SLF001
                ended = max(ended, fault.offset)
            elif code in OUT_OF_RANGE:
                if not has_records:
                    raise OffsetOutOfRange(f"partition {partition}, offset {start}")
                has_stopped = True  # the next call restarts it
            elif code not in UNIMPORTANT | BEING_ELECTED and not fault.error.retriable():
                raise self._troubles.meaning(fault.error, f"partition {partition} cannot be read")
        return has_stopped, ended

    def _rest(self) -> None:
        before = time.monotonic() - RESTING_S
        for partition in [each for each, lane in self._lanes.items() if lane.used_at < before]:
            del self._lanes[partition]
            self._fetcher.end(partition)

"""Whether a partition still holds the records that were read, decided by leader epochs (KIP-101).

Each leader of a partition has an epoch, greater than all before it, which each of its records contains. An unclean election
truncates the log, and the new leader's records replace others. The end of the log may soon be where it was. But then the last record
before a position has a later epoch than the log had when that position was read.
"""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from engine.connections.kafka import silent_logger
from engine.definition.sources.kafka import KafkaPlace
from engine.sources.kafka.brokers.broker_errors import BEING_ELECTED, OUT_OF_RANGE, BrokerErrors
from engine.sources.kafka.brokers.client import connection_of, consumer_options

FURTHER: Final = 16
"""Factor by which the search goes further back after each miss: transaction markers and compacted records are no records."""

ANSWER_S: Final = 20.0
_AT_ONCE: Final = 1_000
_STEP_S: Final = 0.5


def epoch_before(dsn: str, place: KafkaPlace, partition: int, low: int, position: int) -> int | None:
    """Return the leader epoch of the last record before a position; None: no record is left there.

    Raises:
        SourceUnavailable: the broker gives no answer.
        TopicMissing, TopicDenied: see there.
    """
    connection = connection_of(dsn, place)
    troubles = BrokerErrors(place.topic, connection.reader.without_secrets)
    options = {**consumer_options(connection), "isolation.level": "read_uncommitted", "error_cb": troubles.note}
    consumer = Consumer(options, logger=silent_logger())
    try:
        back, end_s = 1, time.monotonic() + ANSWER_S
        while True:
            start = max(low, position - back)
            found = _epoch_within(consumer, TopicPartition(place.topic, partition, start), position, end_s)
            if found is not None or start <= low:
                return found
            back *= FURTHER
    except KafkaException as error:
        raise troubles.meaning(error.args[0], f"partition {partition} cannot be read") from error
    except TimeoutError as error:
        raise troubles.silent(f"partition {partition}: no record comes from the broker") from error
    finally:
        consumer.close()


def _epoch_within(consumer: Consumer, start: TopicPartition, position: int, end_s: float) -> int | None:
    """Return the epoch of the last record between two offsets.

    Raises:
        TimeoutError: the broker gives no answer.
        KafkaException: it refuses.
    """
    consumer.assign([start])
    last: Message | None = None
    while True:
        for message in consumer.consume(_AT_ONCE, _STEP_S):
            error = message.error()
            if error is None:
                if (message.offset() or 0) >= position:
                    return _epoch_of(last)
                last = message
            elif error.code() == KafkaError._PARTITION_EOF or error.code() in OUT_OF_RANGE:  # noqa: SLF001
                return _epoch_of(last)
            elif error.code() not in BEING_ELECTED and not error.retriable():
                raise KafkaException(error)
        if last is not None and last.offset() == position - 1:
            return _epoch_of(last)
        if time.monotonic() > end_s:
            raise TimeoutError


def _epoch_of(message: Message | None) -> int | None:
    return None if message is None else message.leader_epoch()

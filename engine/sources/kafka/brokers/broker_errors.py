"""The meaning of librdkafka's errors here: a topic is missing or forbidden, offsets are gone, brokers are away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError

from engine.errors import SourceUnavailable

_GONE: Final = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}  # noqa: SLF001
_DENIED: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError._AUTHENTICATION,  # noqa: SLF001
    KafkaError.SASL_AUTHENTICATION_FAILED,
}  # fmt: skip
AWAY: Final = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT}  # noqa: SLF001
OUT_OF_RANGE: Final = {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET}  # noqa: SLF001
BEING_ELECTED: Final = {
    KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.REPLICA_NOT_AVAILABLE, KafkaError.OFFSET_NOT_AVAILABLE, KafkaError.PREFERRED_LEADER_NOT_AVAILABLE,
    KafkaError.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}  # fmt: skip
"""A partition has no known leader yet, because it is new or has moved: the same question is repeated."""

UNIMPORTANT: Final = {KafkaError.GROUP_AUTHORIZATION_FAILED}
"""No group is used: the service keeps the positions."""

_KEPT: Final = 5


class TopicMissing(Exception):
    """The broker has no such topic, or none that this user may see."""


class TopicDenied(Exception):
    """The broker does not allow this user to read the topic."""


class OffsetOutOfRange(Exception):
    """The broker has no record at an offset: it was removed, or never existed."""


class BrokerErrors:
    """Errors of a topic's brokers. Secrets are removed from every text."""

    def __init__(self, topic: str, without_secrets: Callable[[str], str] = str) -> None:
        self._topic, self._shown = topic, without_secrets
        self._recorded: list[KafkaError] = []

    def note(self, error: KafkaError) -> None:
        """Remember a client's report about its brokers, for the text of the next refusal."""
        self._recorded[:] = [*self._recorded[1 - _KEPT :], error]

    def forget(self) -> None:
        self._recorded.clear()

    @property
    def is_denied(self) -> bool:
        """Whether a broker refuses this user: no answer will come, so nobody waits for one."""
        return any(recorded.code() in _DENIED for recorded in self._recorded)

    def why(self) -> str:
        """Return the reports as a text to append to a sentence."""
        known = list(dict.fromkeys(self._shown(error.str()) for error in self._recorded))
        return f" ({'; '.join(known)[:300]})" if known else ""

    def text(self, error: KafkaError) -> str:
        return self._shown(error.str())[:300]

    def meaning(self, error: KafkaError, failing: str) -> Exception:
        """Return the exception for an error; ``failing`` says what did not work."""
        if error.code() in _GONE:
            return TopicMissing(self._topic)
        if error.code() in _DENIED or self.is_denied:
            return TopicDenied(self.text(error) + self.why())
        away = "no broker can be reached: " if error.code() in AWAY else ""
        return SourceUnavailable(f"topic {self._topic!r}: {failing}: {away}{self.text(error)}{self.why()}")

    def silent(self, failing: str) -> Exception:
        """Return the exception for a missing answer."""
        if self.is_denied:
            return TopicDenied(f"no answer{self.why()}")
        return SourceUnavailable(f"topic {self._topic!r}: {failing}{self.why()}")

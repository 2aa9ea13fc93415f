"""What librdkafka reports, as what it means here: a topic that is missing or may not be read, offsets that are gone, brokers that are away."""

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
"""A partition has no leader that is known here yet, as one that was just made or has moved: the same question is asked again."""

UNIMPORTANT: Final = {KafkaError.GROUP_AUTHORIZATION_FAILED}
"""No group is used: positions are the service's."""

_KEPT: Final = 5


class TopicMissing(Exception):
    """The broker has no such topic, or none that who asks may know of."""


class TopicDenied(Exception):
    """The broker does not allow who asks to look at the topic."""


class OffsetOutOfRange(Exception):
    """The broker has not what lies at an offset: it was removed, or never was."""


class BrokerErrors:
    """What goes wrong with a topic's brokers. Secrets are taken out of every text.

    Args:
        topic: its name.
        without_secrets: takes them out.
    """

    def __init__(self, topic: str, without_secrets: Callable[[str], str] = str) -> None:
        self._topic, self._shown = topic, without_secrets
        self._noted: list[KafkaError] = []

    def note(self, error: KafkaError) -> None:
        """Remember what a client reports of its brokers: the next refusal says it."""
        self._noted[:] = [*self._noted[1 - _KEPT :], error]

    def forget(self) -> None:
        """Begin anew."""
        self._noted.clear()

    @property
    def is_denied(self) -> bool:
        """Whether a broker does not accept who asks: no answer will come, so nobody waits for one."""
        return any(noted.code() in _DENIED for noted in self._noted)

    def why(self) -> str:
        """Say what was noted, to stand behind a sentence."""
        known = list(dict.fromkeys(self._shown(error.str()) for error in self._noted))
        return f" ({'; '.join(known)[:300]})" if known else ""

    def text(self, error: KafkaError) -> str:
        """Return what an error says."""
        return self._shown(error.str())[:300]

    def meaning(self, error: KafkaError, failing: str) -> Exception:
        """Return what to raise of an error; ``failing`` says what did not work."""
        if error.code() in _GONE:
            return TopicMissing(self._topic)
        if error.code() in _DENIED or self.is_denied:
            return TopicDenied(self.text(error) + self.why())
        away = "no broker can be reached: " if error.code() in AWAY else ""
        return SourceUnavailable(f"topic {self._topic!r}: {failing}: {away}{self.text(error)}{self.why()}")

    def silent(self, failing: str) -> Exception:
        """Return what to raise where no answer came."""
        if self.is_denied:
            return TopicDenied(f"no answer{self.why()}")
        return SourceUnavailable(f"topic {self._topic!r}: {failing}{self.why()}")

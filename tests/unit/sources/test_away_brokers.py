"""Brokers that are away take little of the time of a process. The clock is made up."""

from __future__ import annotations

import pytest

from engine.errors import SourceUnavailable
from engine.sources.kafka.brokers.unreachable import AwayBrokers, Brokers, BrokersAway

ANSWER_S = 10.0
BROKERS = (1, "dsn", "broker", None)


class Process:
    """A process with a clock, in which queries ask brokers one after the other."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.away = AwayBrokers(lambda: self.now_s)
        self.waited_s = 0.0
        self.told: list[str] = []

    def asks(self, *, is_away: bool, brokers: Brokers = BROKERS, error: type[SourceUnavailable] = BrokersAway) -> bool:
        try:
            with self.away.asking(brokers):
                if is_away:
                    self.now_s += ANSWER_S
                    self.waited_s += ANSWER_S
                    raise error("no broker can be reached")
        except SourceUnavailable as refused:
            self.told.append(str(refused))
            return False
        return True


@pytest.mark.parametrize("queries", [1, 20, 200])
def test_at_most_a_third_of_the_time_goes_to_brokers_that_are_away_however_many_queries_ask(queries: int) -> None:
    process = Process()
    while process.now_s < 30 * 60:
        for _ in range(queries):
            process.asks(is_away=True)
        process.now_s += 1.0
    assert process.waited_s <= process.now_s / 3 + ANSWER_S


def test_brokers_that_are_back_are_found_soon_and_others_are_asked_all_the_time() -> None:
    process = Process()
    assert not process.asks(is_away=True)
    assert not process.asks(is_away=False), "nobody asks right now"
    assert process.told[-1] == "the brokers gave no answer a moment ago, and are asked again in 20 s: no broker can be reached"
    assert process.asks(is_away=False, brokers=(1, "dsn", "other", None))
    process.now_s += 2 * ANSWER_S
    assert process.asks(is_away=False)
    assert process.asks(is_away=False)


def test_what_fails_in_a_moment_keeps_nobody_waiting() -> None:
    process = Process()
    for _ in range(2):
        with pytest.raises(BrokersAway, match="refused"), process.away.asking(BROKERS):
            raise BrokersAway("refused")
    assert process.asks(is_away=False)


def test_one_partition_without_a_leader_keeps_no_other_topic_from_being_read() -> None:
    process = Process()
    assert not process.asks(is_away=True, error=SourceUnavailable)
    assert process.asks(is_away=False)

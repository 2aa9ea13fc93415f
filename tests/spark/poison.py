"""Stages that do harm to the process they run in, for queries of certain names."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from engine.runtime.stages import StageWork
from engine.sources.log.replay_reader import ReplayReader
from engine.sources.packets import Packet

POISONOUS: Final = "poisonous"
WAITING: Final = "waiting"
SPINNING: Final = "spinning"
HUNGRY: Final = "hungry"


def _wait() -> None:
    while True:
        time.sleep(60)


def _spin() -> None:
    """Never let another thread of Python run: a pattern that tries two ways for each of fifty letters."""
    re.match("(a|aa)+$", "a" * 50 + "b")


def _eat() -> None:
    eaten = []
    while True:
        eaten.append(b"x" * (16 << 20))
        time.sleep(0.02)


_HARM: Final[Mapping[str, Callable[[], None]]] = {
    POISONOUS: lambda: os.kill(os.getpid(), signal.SIGKILL),
    WAITING: _wait,
    SPINNING: _spin,
    HUNGRY: _eat,
}


class WaitingReplays(ReplayReader):
    """A feed that is asked in vain how far it reaches."""

    def ends(self) -> Mapping[int, int]:
        _wait()
        return {}


class PoisonedWork(StageWork):
    """The work of ``StageWork``; of a query with such a name it does harm as soon as there is a record."""

    def done(self, packets: Iterator[Packet]) -> Iterator[Packet]:
        for packet in super().done(packets):
            if packet.kind == "data" and self._plan.query in _HARM:
                _HARM[self._plan.query]()
            yield packet

"""A query is in one carrier at most, and in none once it is stopped. Without Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.connectors.admission import BatchLimit
from engine.spark.carrier import Carrier
from engine.spark.cursors import new_cursor
from engine.spark.fleet import LEAST_OWN, Fleet
from engine.spark.source_spec import SourceSpec


@dataclass(eq=False)
class Riding:
    """A query as carriers and a fleet see it.

    Attributes:
        boards: called when a carrier takes it.
        rode: carriers of its own that it was given.
    """

    boards: Callable[[], None] = lambda: None
    name: str = "q@1"
    carrier: Any = None
    is_active: bool = True
    moving: threading.Lock = field(default_factory=threading.Lock)
    rode: int = 0

    def board(self, *_more: Any) -> SourceSpec:
        self.boards()
        return SourceSpec("", (), 1, new_cursor({}, 0, 0), BatchLimit(1, 1), 0)

    def ride_alone(self, *_more: Any, **_named: Any) -> None:
        self.rode += 1


@pytest.fixture
def spark(tmp_path: Path) -> Any:
    context = SimpleNamespace(master="local[1]", defaultParallelism=1)
    return SimpleNamespace(conf=SimpleNamespace(get=lambda _name: str(tmp_path)), sparkContext=context)


def a_carrier(spark: Any) -> Carrier:
    return Carrier(spark, "", "shared 0", pool=0, on_end=lambda _carrier, _error: None)


def test_who_is_stopped_while_it_boards_anew_is_carried_no_longer(spark: Any) -> None:
    carrier, member = a_carrier(spark), Riding()
    assert carrier.join(member)  # type: ignore[arg-type]

    def is_stopped() -> None:
        member.is_active = False
        carrier.leave(member)  # type: ignore[arg-type]

    member.boards = is_stopped
    carrier._board_again([member])  # type: ignore[list-item]
    assert carrier.members == []


def test_who_was_brought_back_before_it_could_ride_alone_stays_where_it_is(spark: Any) -> None:
    fleet, left, other = Fleet(spark, "", lambda: True), a_carrier(spark), a_carrier(spark)
    member: Any = Riding(carrier=other)
    fleet._part(member, left)
    fleet._try_alone(member)
    assert (member.rode, member.carrier) == (0, other)
    member.carrier = left
    fleet._part(member, left)
    assert member.rode == 1


def test_who_waits_to_ride_alone_is_counted_as_one_that_does(spark: Any) -> None:
    fleet, shared = Fleet(spark, "", lambda: True), a_carrier(spark)
    members: list[Any] = [Riding(name=f"q{number}@1", carrier=shared) for number in range(LEAST_OWN + 1)]
    assert all(shared.join(member) for member in members)
    *first, last = members
    with ExitStack() as held:
        for member in first:
            held.enter_context(member.moving)  # the stream before it takes long to start
        for member in members:
            fleet._weighed(member, is_heavy=True)
        fleet._look_after_alone()
        fleet._weighed(last, is_heavy=True)
        assert shared.members == [last]

"""What is outside of the service may be away for as long as it likes: no query spends its budget on that. The clock is made up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import psycopg
import pytest

from app.catalog.drivers.lifecycle import Effect, Limits, Snapshot, decide
from app.catalog.drivers.states import Desired, DesiredState, ErrorReport, HandleKind, HandleReport, State, Status, is_outage
from app.driver.launches.host import report_of
from engine.deliveries.deliveries import TargetUnavailable
from engine.errors import (
    CommitRefused,
    DataInvalid,
    DiskFull,
    EmissionTooLarge,
    ExternalError,
    InternalError,
    ResultLocked,
    SinkUnavailable,
    SourceUnavailable,
    StateUnavailable,
)  # fmt: skip
from engine.formats.port import RegistryUnavailable
from engine.runtime.failures import ExhaustsItsWorker, KillsItsWorker, StallsItsWorker, WorkerLost
from engine.runtime.worker_requirements import WorkersUnfit
from engine.spark.cluster import ClusterBusy

LIMITS = Limits()
MINUTE_MS = 60_000
AWAY_MS = 30 * MINUTE_MS
ANSWER_MS = 10_000
"""So long a launch or a look at a feed waits for a system that gives no answer."""

BACK = HandleReport(HandleKind.RUNNING)

OUTSIDE: list[Exception] = [
    SourceUnavailable("no broker can be reached"),
    SinkUnavailable("the connection is lost"),
    CommitRefused("the database takes nothing now"),
    ResultLocked("somebody holds a lock"),
    StateUnavailable("the bucket gives no answer"),
    RegistryUnavailable("the registry gives no answer"),
    TargetUnavailable("the target gives no answer"),
    ClusterBusy("no executor comes"),
    WorkersUnfit("another version"),
    DiskFull("no space"),
    ExternalError("the file cannot be read"),
    OSError(28, "No space left on device"),
    psycopg.OperationalError("the server closed the connection"),
    psycopg.InterfaceError("the connection is closed"),
    psycopg.errors.ReadOnlySqlTransaction("cannot execute INSERT in a read-only transaction"),
]
OF_THE_QUERY: list[Exception] = [
    WorkerLost("died"), KillsItsWorker("died"), StallsItsWorker("hangs"), ExhaustsItsWorker("too large"),
    InternalError("a bug"), EmissionTooLarge("too much"), RuntimeError("a bug"), DataInvalid("bad record"),
]  # fmt: skip


@dataclass
class Life:
    """One query under one driver: each launch, and each look at its feeds, waits for a system outside.

    Args:
        error: what that system's silence is reported as.
        has_begun: the launch ends before anything outside is asked, as that of a query that has committed already does.
    """

    error: ErrorReport
    has_begun: bool
    now_ms: int = 0
    status: Status = field(default_factory=lambda: Status(observed_generation=1))
    launched_at: list[int] = field(default_factory=list)

    def _decided(self, handle: HandleReport, *, has_progressed: bool = False) -> Effect:
        desired = DesiredState(Desired.RUNNING, generation=1, nonce=0)
        snapshot = Snapshot(
            desired, self.status, handle, True, False, self.now_ms, jitter=0.999, was_busy=False, has_progressed=has_progressed
        )
        action = decide(snapshot, LIMITS)
        self.status = action.status or self.status
        return action.effect

    def attempts(self, is_away: Callable[[int], bool]) -> Iterator[State]:
        """Go from launch to launch; gives the state after each."""
        while True:
            if self._decided(HandleReport()) is not Effect.LAUNCH:
                assert self.status.next_attempt_ms is not None, self.status
                self.now_ms = self.status.next_attempt_ms
                continue
            self.launched_at.append(self.now_ms)
            epoch = self.status.epoch
            if self.has_begun or not is_away(self.now_ms):
                self._decided(replace(BACK, epoch=epoch))
            self.now_ms += ANSWER_MS
            if not is_away(self.now_ms):
                self._decided(replace(BACK, epoch=epoch), has_progressed=True)
                yield self.status.state
                return
            self._decided(HandleReport(HandleKind.DEAD, epoch, 0, self.error))
            self._decided(HandleReport())
            yield self.status.state


@pytest.mark.parametrize("has_begun", [True, False])
@pytest.mark.parametrize("error", OUTSIDE, ids=lambda error: type(error).__name__)
def test_a_query_outlives_half_an_hour_without_what_is_outside_and_goes_on_within_a_minute(
    error: Exception, has_begun: bool
) -> None:
    report = report_of(error)
    life = Life(report, has_begun)
    states = []
    for state in life.attempts(lambda now_ms: now_ms < AWAY_MS):
        states.append(state)
        if state is State.BACKOFF:
            assert life.status.error == report
            assert life.status.next_attempt_ms is not None
            assert life.status.next_attempt_ms - life.now_ms <= MINUTE_MS
    assert {*states[:-1]} == {State.BACKOFF}
    assert (states[-1], life.status.attempt, life.status.outages, life.status.error) == (State.RUNNING, 0, 0, None)
    assert len(states) > LIMITS.max_attempts  # type: ignore[operator]
    assert life.now_ms - AWAY_MS <= MINUTE_MS + 2 * ANSWER_MS


@pytest.mark.parametrize("has_begun", [True, False])
def test_the_first_attempts_come_soon_and_the_later_ones_once_a_minute(has_begun: bool) -> None:
    life = Life(report_of(SourceUnavailable("away")), has_begun)
    for _ in life.attempts(lambda now_ms: now_ms < AWAY_MS):
        pass
    pauses = [later - earlier - ANSWER_MS for earlier, later in zip(life.launched_at, life.launched_at[1:], strict=False)]
    assert pauses[:6] == [999, 1_999, 3_998, 7_996, 15_992, 31_984]
    assert {*pauses[6:]} == {59_970}


@pytest.mark.parametrize("error", OF_THE_QUERY, ids=lambda error: type(error).__name__)
def test_what_the_query_itself_may_have_caused_is_no_outage(error: Exception) -> None:
    assert not is_outage(report_of(error))


def test_an_outage_gives_back_no_attempt_that_was_spent_on_something_else() -> None:
    life = Life(report_of(SourceUnavailable("away")), has_begun=True, status=Status(observed_generation=1, attempt=0))
    attempts = life.attempts(lambda _now_ms: True)
    next(attempts)
    life.error = report_of(InternalError("a bug"))
    next(attempts)
    life.error = report_of(SourceUnavailable("away"))
    next(attempts)
    assert (life.status.state, life.status.attempt, life.status.outages) == (State.BACKOFF, 1, 2)

"""Whether a supervisor's driver starts and stays up. Pure: it gets events with times in seconds of one clock."""

from __future__ import annotations

from dataclasses import dataclass

FAILED_LIVES = 3
"""So many short-lived drivers in a row are a problem. One or two may be an accident: a killed process, or an unreachable database."""

LIVES_AT_ONCE = 5
"""After so many short lives in a row, if the drivers were ready, there is no pause. Whatever ends more of them would end the next one too."""

READY_WITHIN_S = 180.0
"""A cold machine compiles Python and starts a JVM in half a minute, a loaded one takes several times as long."""

HEALTHY_S = 60.0
"""A driver that lived this long did not fail at its start."""

FIRST_RESTART_S, LONGEST_RESTART_S = 0.5, 30.0
"""Pause between the end of one driver and the start of the next, if drivers do not start."""

LONGEST_AFTER_KILL_S = 5.0
"""The same if a signal ended the driver: its start was not at fault, and queries wait."""

_ENDS = {
    1: "it crashed",
    3: "its engine (Spark) did not start or ended",
    4: "a query did not stop in time",
    5: "a newer version has changed the schema",
}
_ADVICE = "see driver.log in the data directory; `slackwater doctor` looks for the cause"


@dataclass(slots=True)
class DriverHealth:
    """The history of a supervisor's drivers.

    Attributes:
        unready_since: end of the last ready driver, or start of the supervisor; None: a driver is ready now.
        failed_lives: drivers in a row that ended within ``HEALTHY_S`` or were never ready.
        failed_starts: drivers in a row that were never ready.
        last_end: how the last one ended.
        was_killed: whether a signal ended the last one.
        waits_for: why no driver is started at all; None: there is no such reason.
    """

    unready_since: float | None
    failed_lives: int = 0
    failed_starts: int = 0
    last_end: str = ""
    was_killed: bool = False
    waits_for: str | None = None

    def saw_ready(self, lived_s: float) -> None:
        self.unready_since = None
        if lived_s > HEALTHY_S:
            self.failed_lives = 0

    def ended(self, exit_code: int | None, lived_s: float, now_s: float) -> None:
        was_ready = self.unready_since is None
        self.unready_since = now_s if was_ready else self.unready_since
        self.failed_lives = 0 if was_ready and lived_s > HEALTHY_S else self.failed_lives + 1
        self.failed_starts = 0 if was_ready else self.failed_starts + 1
        self.last_end = _words(exit_code)
        self.was_killed = exit_code is not None and exit_code < 0

    def did_not_start(self, error: str) -> None:
        self.failed_lives += 1
        self.failed_starts += 1
        self.last_end = error
        self.was_killed = False

    @property
    def pause_s(self) -> float:
        """How long to wait before the next driver starts: 0 after a ready one, unless many in a row had short lives."""
        failed = self.failed_starts or max(0, self.failed_lives - LIVES_AT_ONCE)
        if failed == 0:
            return 0.0
        longest = LONGEST_AFTER_KILL_S if self.was_killed else LONGEST_RESTART_S
        return min(longest, FIRST_RESTART_S * 2.0 ** min(failed, 10))

    def trouble(self, now_s: float) -> str | None:
        """Return why no driver is ready, for users; None if one is, or may still start. The text has no path and no record."""
        if self.waits_for is not None:
            return self.waits_for
        if self.failed_lives >= FAILED_LIVES:
            return f"{self.failed_lives} drivers in a row ended soon after their start; the last end: {self.last_end}; {_ADVICE}"
        if self.unready_since is not None and now_s - self.unready_since > READY_WITHIN_S:
            return f"no driver has become ready for {now_s - self.unready_since:.0f} s; {_ADVICE}"
        return None


def _words(exit_code: int | None) -> str:
    if exit_code is None:
        return "it sent no heartbeat and could not be killed"
    if exit_code < 0:
        return f"signal {-exit_code} killed it"
    meaning = _ENDS.get(exit_code)
    return f"exit code {exit_code}" + (f" ({meaning})" if meaning else "")

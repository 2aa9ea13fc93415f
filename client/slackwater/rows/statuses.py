"""Answers about queries with more than their JSON: properties for waiting, and pictures for notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slackwater.answers.answer_list import ExplainAnswer, LatenessAnswer, StatusAnswer, ValidationAnswer
from slackwater.errors import Json
from slackwater.parameters import conditions


class Status(StatusAnswer):
    """A query's status."""

    @property
    def is_current(self) -> bool:
        """Whether the driver runs the current definition."""
        return self.observed_generation == self.generation

    def has_reached(self, wanted: str) -> bool:
        """Return whether it has this state with its current definition, and its driver sends heartbeats."""
        if self.state != wanted or (wanted == "running" and "unreachable" in self.conditions):
            return False
        return self.is_current or wanted in ("stopped", "stopping")

    @property
    def lag(self) -> int | None:
        """Unread records; None if unknown: before its first read, and for files."""
        lags = [partition.lag for feed in self.progress for partition in feed.partitions]
        known = [lag for lag in lags if lag is not None]
        return sum(known) if known else None

    @property
    def is_caught_up(self) -> bool:
        """Whether it runs and has read all records of all its feeds; False until all feeds are discovered."""
        is_discovered = all(feed.is_discovered for feed in self.progress)
        return self.state == "running" and self.is_current and self.lag == 0 and is_discovered

    @property
    def late_count(self) -> int:
        """Number of late records, whatever became of them."""
        return sum(counter.count for counter in self.counters if "late" in counter.reason or counter.reason.endswith("_closed"))

    @property
    def summary(self) -> str:
        """Its state in a sentence."""
        parts = [self.state if self.phase is None else f"{self.state} ({self.phase})"]
        if self.reason is not None:
            parts.append(f"{self.reason.code}: {self.reason.detail}")
        if self.lag:
            parts.append(f"{self.lag:,} records behind")
        return ", ".join(parts)

    def __repr__(self) -> str:
        return f"<status of {self.name}: {self.summary}>"

    def _repr_html_(self) -> str:
        from slackwater.displays.tables import status_table

        return status_table(self, self.lag)


class Lateness(LatenessAnswer):
    """How late records came, and the effect of other graces."""

    def __repr__(self) -> str:
        return f"<lateness of {self.query}: {len(self.inputs)} inputs, {len(self.settings)} settings>"

    def svg(self) -> str:
        """Return the lateness curve of each setting: the share of late records over the grace, with the current grace marked."""
        from slackwater.displays.lateness import lateness_curves

        return lateness_curves(self)

    def _repr_html_(self) -> str:
        return self.svg()


class Explanation(ExplainAnswer):
    """Why there is no row yet, or why there is this one."""

    @property
    def sentence(self) -> str:
        """The answer in a form for people."""
        return self.answer.sentence

    def __str__(self) -> str:
        return self.sentence

    def __repr__(self) -> str:
        return f"<{self.query}: {self.sentence}>"

    def _repr_html_(self) -> str:
        from slackwater.displays.tables import explanation_table

        return explanation_table(self.sentence, self)


class Validation(ValidationAnswer):
    """The result of validating a definition."""

    def __bool__(self) -> bool:
        return self.valid

    def __repr__(self) -> str:
        if not self.valid:
            return f"<not valid: {'; '.join(f'{each.pointer}: {each.detail}' for each in self.problems)}>"
        kind = "" if self.edit is None else f", an edit: {self.edit.kind}"
        return f"<valid{kind}, {len(self.warnings)} warnings>"

    def _repr_html_(self) -> str:
        from slackwater.displays.tables import validation_table

        return validation_table(self)


@dataclass(frozen=True, slots=True)
class TideChart:
    """Stream time of a query, and what waits; a picture in notebooks.

    Attributes:
        status: with ``tasks``.
        lateness: its settings have the distance of the boundary behind stream time.
    """

    status: Status
    lateness: Lateness

    def svg(self) -> str:
        """Return the picture: stream time, the boundary, records that wait between the two, and late records."""
        from slackwater.displays.tide import tide_chart

        return tide_chart(self.status, self.lateness)

    def _repr_html_(self) -> str:
        return self.svg()


@dataclass(frozen=True, slots=True)
class LateRecordFilter:
    """A filter of late records: they match every field that is set."""

    reason: str | None
    input: str | None
    from_: str | None
    to: str | None
    key: Mapping[str, Any] | None

    def params(self) -> list[tuple[str, str]]:
        """Return the filter as query parameters."""
        return [*self._named().items(), *conditions(self.key, "key")]

    def json(self) -> Json:
        """Return the filter as the body of a replay."""
        return {**self._named(), **({} if self.key is None else {"key": dict(self.key)})}

    def _named(self) -> dict[str, str]:
        named = {"reason": self.reason, "input": self.input, "from": self.from_, "to": self.to}
        return {name: value for name, value in named.items() if value is not None}

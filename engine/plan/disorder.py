"""How far out of the order of event time a query's results can come although its input was in order. Pure.

A filter, a ``select``, an exchange by another key, a join that looks up on arrival and an aggregation that shows every change keep their input's
order, whatever the number of tasks: what reads their result needs no more grace than what reads their source. Operators that wait do not:

- by themselves (*disorder*): the record without a match of a stream-stream join comes as late as its range closes, behind matches of later
  records; a suppressed change and a window's final result come behind changes that are newer;
- with several tasks (*wait*): each task waits by its own stream time (T1). One that has heard less lets a record go when the others are
  ahead of it by as much as the wait, or more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.definition.queries import Join, QueryDefinition, Suppress, Window
from engine.expressions.durations import format_duration
from engine.plan.building.grouping import WINDOW_OPERATOR
from engine.plan.building.suppressing import SUPPRESS_OPERATOR
from engine.plan.building.windows import length_of

Producers = Callable[[str], QueryDefinition | None]
"""Gives the normalised definition of the query that writes a relation; None for a source, and where it is not known."""


@dataclass(frozen=True, slots=True)
class Wait:
    """An operator that holds its results back.

    Attributes:
        operator: its name in the plan.
        what: the part of the definition, as a reader of it calls it.
        wait_ms: by event time or by wall clock.
        disorder_ms: by how much its results come out of order in one task.
    """

    operator: str
    what: str
    wait_ms: int
    disorder_ms: int


@dataclass(frozen=True, slots=True)
class Disorder:
    """What the queries behind a relation add to the disorder of their sources.

    Attributes:
        in_one_task_ms: also where each of them has one task.
        between_tasks_ms: waits of those that have several.
        waiting: what waits in those that have several, for a sentence.
        reordering: what reorders by itself, for a sentence.
    """

    in_one_task_ms: int = 0
    between_tasks_ms: int = 0
    waiting: tuple[str, ...] = ()
    reordering: tuple[str, ...] = ()

    @property
    def total_ms(self) -> int:
        """Both together."""
        return self.in_one_task_ms + self.between_tasks_ms

    def behind(self, other: Disorder) -> Disorder:
        """Return what comes of this one behind another one."""
        return Disorder(
            self.in_one_task_ms + other.in_one_task_ms,
            self.between_tasks_ms + other.between_tasks_ms,
            (*other.waiting, *self.waiting),
            (*other.reordering, *self.reordering),
        )

    @staticmethod
    def of(waits: tuple[Wait, ...], place: str, *, has_tasks: bool) -> Disorder:
        """Return what some operators add.

        Args:
            waits: the operators.
            place: the query, for a sentence.
            has_tasks: several tasks of them feed one reader.
        """
        waiting = tuple(f"{wait.what} of {place}" for wait in waits if has_tasks and wait.wait_ms)
        reordering = tuple(f"{wait.what} of {place}" for wait in waits if wait.disorder_ms)
        between_ms = sum(wait.wait_ms for wait in waits) if has_tasks else 0
        return Disorder(sum(wait.disorder_ms for wait in waits), between_ms, waiting, reordering)


def disorder_of(relation: str, producers: Producers) -> Disorder:
    """Return what the queries behind a relation add, all the way from the sources."""
    definition = producers(relation)
    if definition is None:
        return Disorder()
    own = Disorder.of(waits_of(definition), f"query {definition.name!r}", has_tasks=definition.tasks != 1)
    return own.behind(greatest([disorder_of(name, producers) for name in triggering(definition)]))


def greatest(found: list[Disorder]) -> Disorder:
    """Return the greatest of several that come together."""
    return max(found, key=lambda each: (each.total_ms, each.between_tasks_ms), default=Disorder())


def triggering(definition: QueryDefinition) -> list[str]:
    """Return the inputs whose records trigger results: a table that a stream looks up does not (J1)."""
    is_stream = definition.source.stream is not None
    return [definition.source.relation, *(join.relation for join in definition.joins if join.stream is not None or not is_stream)]


def waits_of(definition: QueryDefinition) -> tuple[Wait, ...]:
    """Return the operators of a normalised definition that wait, in the order of T9."""
    found = [_wait_of_join(join) for join in definition.joins]
    if definition.window is not None:
        found.append(_wait_of_window(definition.window, definition.suppress))
    found.append(_wait_of_limit(definition.suppress))
    return tuple(wait for wait in found if wait is not None)


def _wait_of_join(join: Join) -> Wait | None:
    name = join.alias or join.relation
    if join.within is not None:
        return _wait_for_match(join, name)
    wait_ms = (join.grace or 0) + (0 if join.hold is None else join.hold.at_most)
    parts = [f"the grace {format_duration(join.grace)}"] if join.grace else []
    parts += [] if join.hold is None else ["the hold"]
    return Wait(name, f"{' and '.join(parts)} of the join {name!r}", wait_ms, 0) if wait_ms else None


def _wait_for_match(join: Join, name: str) -> Wait | None:
    """Only a record without a match waits; a match has the time of its later record (SS2)."""
    if join.within is None or join.type == "inner":
        return None
    reach_ms = join.within.after if join.type == "left" else max(join.within.after, join.within.before)
    wait_ms = reach_ms + join.within.grace
    return Wait(
        name, f"the {join.type} join {name!r} (unmatched records come {format_duration(wait_ms)} later)", wait_ms, wait_ms
    )


def _wait_of_window(window: Window, suppress: Suppress) -> Wait | None:
    """A result has the time of its last record (W7), a session's its end, and sessions close in the order of their ends (W6)."""
    length_ms = length_of(window) or 0
    disorder_ms = 0 if window.type == "session" else length_ms
    if suppress.mode == "until_window_closes":
        return Wait(WINDOW_OPERATOR, "the final windows", length_ms + window.grace, disorder_ms)
    if suppress.mode == "window_end_then_corrections":
        return Wait(WINDOW_OPERATOR, "the windows that are shown at their end", length_ms, disorder_ms)
    return None


def _wait_of_limit(suppress: Suppress) -> Wait | None:
    """A change goes with the time of its last update, when its first one is due (S1, S2)."""
    if not suppress.limit:
        return None
    return Wait(SUPPRESS_OPERATOR, f"suppress {suppress.mode} {format_duration(suppress.limit)}", suppress.limit, suppress.limit)

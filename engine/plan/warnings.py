"""Warnings: definitions that are accepted and may still surprise, each with a pointer to its field and the cure. Pure.

Codes:

- ``lateness_depends_on_tasks``: a window or a grace reads what several tasks release after waiting, each by its own stream time (T1);
- ``no_grace_on_derived``: no grace over a relation whose producer emits out of the order of event time;
- ``no_grace_behind_join``: the same behind a join of the same query;
- ``event_time_is_arrival``: a window or a grace judges by event time, and the stream's is the time of arrival;
- ``table_dated_by_arrival``: a stream with an event-time column looks up a table without one (J2, V4);
- ``history_by_change``: the history of a running aggregation, whose versions have the time of each change (A3).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.definition.queries import QueryDefinition, Window
from engine.expressions.durations import format_duration
from engine.plan.building.grouping import WINDOW_OPERATOR
from engine.plan.catalog import Catalog
from engine.plan.disorder import Disorder, Producers, disorder_of, greatest, triggering, waits_of
from engine.plan.model import Plan, RelationSchema


@dataclass(frozen=True, slots=True)
class DefinitionWarning:
    """Something that a user would not expect of a definition that is good otherwise.

    Attributes:
        pointer: JSON pointer of the field that could be changed.
        detail: what happens.
        cure: what can be done.
    """

    pointer: str
    code: str
    detail: str
    cure: str


@dataclass(frozen=True, slots=True)
class _LatenessGauge:
    """An operator that judges lateness.

    Attributes:
        operator: its name in the plan.
        what: for a sentence.
        pointer: of its grace.
        slack_ms: what a record may be behind before the grace counts (``engine.plan.lateness``).
        joins: how many joins stand before it, itself included if it joins a stream.
    """

    operator: str
    what: str
    pointer: str
    grace_ms: int
    slack_ms: int
    joins: int

    @property
    def tolerance_ms(self) -> int:
        """How far behind stream time no record is late."""
        return self.grace_ms + self.slack_ms


def warnings_of(definition: QueryDefinition, plan: Plan, catalog: Catalog, producers: Producers) -> list[DefinitionWarning]:
    """Say where a query's lateness, matches or history depend on what a user would not expect.

    Args:
        definition: normalised.
        plan: of it.
        catalog: what it was planned against.
        producers: the queries behind its inputs.
    """
    judges = list(_lateness_gauges(definition))
    found = [warning for judge in judges for warning in _of_order(judge, definition, plan, producers)]
    for pointer, name in dict(feed for judge in judges for feed in _streams(judge, definition)).items():
        found += _of_arrival(pointer, name, catalog, producers)
    return [*found, *_of_lookups(definition, catalog, producers), *_of_history(definition)]


def _lateness_gauges(definition: QueryDefinition) -> Iterator[_LatenessGauge]:
    """Yield the operators that judge a stream's records. A grace of 0s decides nothing unless late records are treated otherwise (J4)."""
    for place, join in enumerate(definition.joins):
        name, within = join.alias or join.relation, join.within
        if within is not None:
            slack_ms = min(within.before, within.after)
            yield _LatenessGauge(name, f"the join {name!r}", f"/joins/{place}/within/grace", within.grace, slack_ms, place + 1)
        elif join.grace or (join.grace is not None and join.late != "join"):
            yield _LatenessGauge(name, f"the join {name!r}", f"/joins/{place}/grace", join.grace, 0, place)
    window = definition.window
    if window is not None:
        yield _LatenessGauge(WINDOW_OPERATOR, "the window", "/window/grace", window.grace, _slack(window), len(definition.joins))


def _slack(window: Window) -> int:
    """Return how far behind a record may be although the grace is nothing (W3, W4)."""
    return {"session": window.gap, "sliding": window.difference}.get(window.type) or 0


def _streams(judge: _LatenessGauge, definition: QueryDefinition) -> list[tuple[str, str]]:
    """Return the streams whose records an operator judges, with the pointers that name them."""
    joined = [(f"/joins/{place}/stream", join.stream) for place, join in enumerate(definition.joins[: judge.joins])]
    named = [("/from/stream", definition.source.stream), *joined]
    return [(pointer, name) for pointer, name in named if name is not None]


def _of_order(
    judge: _LatenessGauge, definition: QueryDefinition, plan: Plan, producers: Producers
) -> Iterator[DefinitionWarning]:
    derived = greatest([disorder_of(name, producers) for _, name in _streams(judge, definition)])
    own = _own_disorder(judge, definition, plan)
    both = own.behind(derived)
    tolerance_ms = judge.tolerance_ms
    if both.between_tasks_ms > tolerance_ms:
        wait = format_duration(both.between_tasks_ms)
        yield DefinitionWarning(
            judge.pointer, "lateness_depends_on_tasks",
            f"{judge.what} reads what {_listed(both.waiting)} lets go after waiting up to {wait}. Each task waits by its own stream time "
            f"(T1), so which records are late here depends on the number of tasks",
            f"give a grace of at least {wait}, or run what waits with \"tasks\": 1",
        )  # fmt: skip
    if judge.grace_ms == 0 and derived.total_ms > tolerance_ms:
        yield _no_grace("no_grace_on_derived", judge, derived)
    if judge.grace_ms == 0 and own.total_ms > tolerance_ms:
        yield _no_grace("no_grace_behind_join", judge, own)


def _no_grace(code: str, judge: _LatenessGauge, disorder: Disorder) -> DefinitionWarning:
    least = format_duration(disorder.total_ms)
    causes = _listed(tuple(dict.fromkeys((*disorder.reordering, *disorder.waiting))))
    return DefinitionWarning(
        judge.pointer, code,
        f"{judge.what} has no grace, and {causes} lets results go out of the order of event time, by about {least}: what comes behind "
        f"newer results is late here",
        f"give a grace of at least {least}, beside what the sources themselves need",
    )  # fmt: skip


def _own_disorder(judge: _LatenessGauge, definition: QueryDefinition, plan: Plan) -> Disorder:
    """Return what the query's own operators before this one add; their tasks differ from its own where an exchange lies between."""
    stages = {operator.name: stage.index for stage in plan.stages for operator in stage.operators}
    names = {join.alias or join.relation for join in definition.joins[: judge.joins]} - {judge.operator}
    before = [wait for wait in waits_of(definition) if wait.operator in names]
    beside = tuple(wait for wait in before if stages[wait.operator] == stages[judge.operator])
    apart = tuple(wait for wait in before if wait not in beside)
    found = Disorder.of(apart, "this query", has_tasks=definition.tasks != 1)
    return found.behind(Disorder.of(beside, "this query", has_tasks=False))


def _listed(names: tuple[str, ...]) -> str:
    return " and ".join(names)


def _of_arrival(pointer: str, name: str, catalog: Catalog, producers: Producers) -> Iterator[DefinitionWarning]:
    sources = sorted(set(_undated(name, catalog, producers)))
    if not sources:
        return
    declared = ", ".join(repr(source) for source in sources)
    origin = "it" if sources == [name] else declared
    yield DefinitionWarning(
        pointer, "event_time_is_arrival",
        f"{origin} names no `event_time` column: unless each record brings `$event_time_ms`, windows and graces over {name!r} count by the "
        f"time of arrival, and the same records read again later give other results",
        f"register {declared} with `event_time`",
    )  # fmt: skip


def _of_lookups(definition: QueryDefinition, catalog: Catalog, producers: Producers) -> Iterator[DefinitionWarning]:
    """Warn of tables whose rows are dated by arrival where the stream that looks them up has times of its own."""
    stream = definition.source.stream
    if stream is None or any(_undated(stream, catalog, producers)):
        return
    for place, join in enumerate(definition.joins):
        entry = None if join.table is None else catalog.get(join.table)
        sources = [] if entry is None or join.table is None else sorted(set(_undated(join.table, catalog, producers)))
        if entry is None or not sources:
            continue
        declared = ", ".join(repr(source) for source in sources)
        is_versioned = entry.relation.history_retention_ms is not None
        result = (
            f"a record of {stream!r} from before a row arrived does not meet that row"
            if is_versioned
            else f"records are read in the order of event time, so those of {stream!r} from before a row arrived are read before that row "
            f"where both are still unread, and do not meet it"
        )
        others = "" if is_versioned else "; nothing where rows arrive before the events that meet them"
        yield DefinitionWarning(
            f"/joins/{place}/table", "table_dated_by_arrival",
            f"{declared} names no `event_time` column: unless each record brings a time of its own (`$event_time_ms`, a topic's timestamp), the "
            f"rows of {join.table!r} are valid from their arrival, and {result}",
            f"register {declared} with an `event_time` column that says from when a row is valid, or append its rows with "
            f"`$event_time_ms`{others}",
        )  # fmt: skip


def _of_history(definition: QueryDefinition) -> Iterator[DefinitionWarning]:
    """Warn of the history of a running aggregation over a stream (A3)."""
    is_running = bool(definition.aggregate or definition.group_by) and definition.window is None
    if definition.into.versioned is None or not is_running or definition.source.stream is None:
        return
    yield DefinitionWarning(
        "/into/versioned", "history_by_change",
        "each version of a row has the greatest event time of the records counted so far: a record that comes out of the order of event "
        "time changes the row from that time on, not from its own. A read as of a time shows what was counted by then; it is not complete "
        "by event time",
        "count in windows for results that are complete by event time; nothing where the records come in the order of event time, or "
        "where the history of the changes is meant",
    )  # fmt: skip


def _undated(name: str, catalog: Catalog, producers: Producers) -> Iterator[str]:
    """Yield the sources without an event time from whose records a relation's times come."""
    entry, definition = catalog.get(name), producers(name)
    if definition is not None:
        if definition.into.event_time is not None:
            return
        for read in triggering(definition):
            yield from _undated(read, catalog, producers)
    elif entry is not None and entry.produced_by is None and _is_dated_by_arrival(entry.relation):
        yield name


def _is_dated_by_arrival(relation: RelationSchema) -> bool:
    """Whether records have no time of their own; changes of a database have that of their commit."""
    is_of_database = relation.conflict == "latest_position" or relation.change_rules is not None
    return relation.event_time is None and not is_of_database

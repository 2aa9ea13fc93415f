"""A test as it stands in a file: definitions, steps, expectations. Reads it, checks everything in it, plans its queries.

``Slicing`` cuts a test's records into batches. Results do not depend on it (T3, P4): that is tried with every run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from pydantic import Field, ValidationError

from app.testing.comparing.rows import milliseconds
from app.testing.documents import Document, FileInvalid, FileProblem
from app.testing.expectations import Expectation, Subject, read_expectation
from app.testing.sources import Json, add_below, partitions_of, read_sources, tables_held_for
from engine.definition.problems import Problems, pointer_of, problems_of
from engine.definition.relations import SourceDefinition
from engine.errors import DefinitionInvalid, Problem
from engine.expressions.durations import parse_duration
from engine.expressions.model import Model, Name
from engine.plan.build import build_plan, read_query
from engine.plan.catalog import CatalogEntry, derived_entry, source_entry, with_parts
from engine.plan.model import Plan

_PAUSES: Final = (0, 0, 1, 3, 8, 32)
"""How many records a query may leave unread before its next batch: tests have some ten records, and a backlog shows most."""

_LIMITS: Final = (1, 4, None)
"""About how many records a random batch reads; None: all there are."""

_RESTARTS: Final = 0.1
"""Share of random batches before which the query is stopped and started again: that must change nothing (V8, J11)."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What a query does after a record came.

    Attributes:
        max_rows: about how many records it reads; None: all there are.
        is_restarted: it is stopped and started again before.
    """

    max_rows: int | None
    is_restarted: bool


@dataclass(frozen=True, slots=True)
class Slicing:
    """When queries read while records come.

    ``record``: each record at once; ``whole``: all of them when somebody waits for the results; ``random``: every query in turns of its
    own, drawn by ``seed``: one is behind, another reads a few records, a third is restarted.
    """

    mode: Literal["record", "whole", "random"] = "record"
    seed: int = 0

    @staticmethod
    def parse(text: str) -> Slicing:
        """Read ``record``, ``whole`` or ``random:SEED``. Raises ValueError."""
        mode, _, seed = text.partition(":")
        if text in ("record", "whole"):
            return Slicing("record" if text == "record" else "whole")
        if mode == "random" and seed.isascii() and seed.isdigit():
            return Slicing("random", int(seed))
        raise ValueError(f"a slicing is record, whole or random:SEED (a number), not {text!r}")

    def turns(self, test: str, query: str) -> Iterator[Turn | None]:
        """Yield what a query does after each record, None: nothing. Differs between queries and tests, and is the same in every run."""
        chance = random.Random(f"{self.seed} {test} {query}")  # noqa: S311 - where batches end is no secret
        while True:
            yield from (None for _ in range(chance.choice(_PAUSES)))
            yield Turn(chance.choice(_LIMITS), chance.random() < _RESTARTS)


START: Final = "2100-01-01T00:00:00Z"
"""The wall clock of a test that does not say it: later than any record, so that none counts as one from the future (T7)."""

_STEPS: Final = "a step is a relation with its records, `advance: 10s`, `now: 2024-01-01T00:00:00Z`, `restart`, or `expect`"


@dataclass(frozen=True, slots=True)
class Append:
    """Records for a source, as they were written.

    Attributes:
        is_list: they stand in a list.
    """

    pointer: str
    relation: str
    records: tuple[Any, ...]
    is_list: bool

    def pointer_of(self, index: int) -> str:
        """Return where one of the records stands."""
        return f"{self.pointer}/{index}" if self.is_list else self.pointer


@dataclass(frozen=True, slots=True)
class Wait:
    """The wall clock goes on."""

    pointer: str
    until_ms: int


@dataclass(frozen=True, slots=True)
class Restart:
    """Every query is stopped and started again from what it kept."""

    pointer: str


@dataclass(frozen=True, slots=True)
class Expect:
    """What must have come of it so far."""

    pointer: str
    wanted: tuple[Expectation, ...]


Step = Append | Wait | Restart | Expect


@dataclass(frozen=True, slots=True)
class Case:
    """A test that can be run.

    Attributes:
        document: where it stands.
        now_ms: the wall clock at its start.
        tasks: of every query, of which each source then has one partition; None: tasks and partitions are those of the definitions.
        slicing: the file's own, or that of this number of tasks.
        sources: relation → definition, with the feed that a test gives it.
        given: relation → body as it was written.
        queries: bodies, with the number of tasks that they run with.
        plans: of the queries, in their order.
        steps: in order; the expectations at the end are the last one.
    """

    document: Document
    name: str
    now_ms: int
    tasks: int | None
    slicing: Slicing
    sources: Mapping[str, SourceDefinition]
    given: Mapping[str, Json]
    queries: tuple[Json, ...]
    plans: tuple[Plan, ...]
    steps: tuple[Step, ...]

    @property
    def has_partitions(self) -> bool:
        """Whether every source has a feed and partitions as its definition says."""
        return self.tasks is None

    @property
    def expectations(self) -> list[Expectation]:
        return [wanted for step in self.steps if isinstance(step, Expect) for wanted in step.wanted]


class _Shape(Model):
    """The outermost fields of a document."""

    name: str | None = Field(default=None, min_length=1)
    streams: dict[Name, dict[str, Any]] = Field(default_factory=dict)
    tables: dict[Name, dict[str, Any]] = Field(default_factory=dict)
    queries: tuple[dict[str, Any], ...] = Field(min_length=1)
    now: str | int = START
    slicing: str | None = None
    steps: tuple[Any, ...] = Field(min_length=1)
    expect: dict[str, Any] | None = None


def read_case(document: Document, place: int = 0, tasks: int | None = None) -> Case:
    """Read a document as a test.

    Args:
        document: the document.
        place: which one of its file it is; names a test without a name.
        tasks: see ``Case``.

    Raises:
        FileInvalid: with every fault found.
    """
    if not isinstance(document.value, dict):
        problem = FileProblem("", "a test is an object with streams, tables, queries, steps and expect", document.line_of(""))
        raise FileInvalid(document.path, [problem])
    problems = Problems()
    try:
        shape = _Shape.model_validate(document.value)
    except ValidationError as error:
        raise _invalid(document, problems_of(error, _Shape)) from error
    now_ms = milliseconds(shape.now)
    if now_ms is None:
        problems.add("/now", "invalid_value", f"write a time such as {START}")
    slicing = _slicing(shape.slicing, tasks, problems)
    sources = read_sources(shape.streams, shape.tables, None if tasks is None else tables_held_for(shape.queries), problems)
    queries, plans = _queries(shape, tasks, sources, problems)
    if problems.found or now_ms is None:
        raise _invalid(document, problems.found)
    subjects = {name: Subject(name, "table" if name in shape.tables else "stream") for name in sources}
    results = _results(sources, plans)
    subjects |= {result.query: result for result in results if result.query is not None}
    subjects |= {result.name: result for result in results}
    steps = _Steps(sources, subjects, now_ms, problems).read(shape)
    if problems.found:
        raise _invalid(document, problems.found)
    name = shape.name or (document.path.stem if place == 0 else f"{document.path.stem} {place + 1}")
    given = {**shape.streams, **shape.tables}
    return Case(document, name, now_ms, tasks, slicing, sources, given, queries, plans, steps)


def _invalid(document: Document, problems: Sequence[Problem]) -> FileInvalid:
    faults = [FileProblem(each.pointer, each.detail, document.line_of(each.pointer)) for each in problems]
    return FileInvalid(document.path, faults)


def _slicing(text: str | None, tasks: int | None, problems: Problems) -> Slicing:
    if text is None:
        return Slicing("random" if tasks is None else "record")
    try:
        return Slicing.parse(text)
    except ValueError as error:
        problems.add("/slicing", "invalid_value", str(error))
        return Slicing()


def _queries(
    shape: _Shape, tasks: int | None, sources: Mapping[str, SourceDefinition], problems: Problems
) -> tuple[tuple[Json, ...], tuple[Plan, ...]]:
    catalog: dict[str, CatalogEntry] = {name: source_entry(name, each) for name, each in sources.items()}
    bodies = shape.queries if tasks is None else tuple({**body, "tasks": tasks} for body in shape.queries)
    plans: list[Plan] = []
    for index, body in enumerate(bodies):
        pointer = f"/queries/{index}"
        try:
            plan = build_plan(read_query(body, partial(dict, catalog)), catalog)
        except DefinitionInvalid as error:
            add_below(problems, pointer, error.problems)
            continue
        if any(plan.query == other.query for other in plans):
            problems.add(f"{pointer}/name", "name_taken", f"there is a query {plan.query!r} already")
        if plan.output.name in catalog:
            problems.add(f"{pointer}/into", "name_taken", f"there is a relation {plan.output.name!r} already")
        target = plan.output.append_to
        if target is not None and any(target in {item.relation.name for item in other.inputs} for other in plans):
            detail = f"put it before the queries that read {target!r}: they read what is appended from the beginning"
            problems.add(f"{pointer}/into/append_to", "unsupported_option", detail)
        catalog = with_parts({**catalog, plan.output.name: derived_entry(plan)})
        plans.append(plan)
    return bodies, tuple(plans)


def _results(sources: Mapping[str, SourceDefinition], plans: Sequence[Plan]) -> list[Subject]:
    """Return what can be expected of the queries, and whether the file decides its order."""
    ordered = {name: partitions_of(each) == 1 for name, each in sources.items()}
    results = []
    for plan in plans:
        ordered[plan.output.name] = all(ordered[item.source_name] for item in plan.inputs)
        results.append(Subject.of(plan, is_ordered=ordered[plan.output.name]))
    return results


class _Steps:
    """Reads the steps, the wall clock going on with them."""

    def __init__(
        self, sources: Mapping[str, SourceDefinition], subjects: Mapping[str, Subject], now_ms: int, problems: Problems
    ) -> None:
        self._sources = sources
        self._subjects = subjects
        self._now_ms = now_ms
        self._problems = problems

    def read(self, shape: _Shape) -> tuple[Step, ...]:
        steps = [self._step(f"/steps/{index}", step) for index, step in enumerate(shape.steps)]
        if shape.expect is not None:
            steps.append(self._expect("/expect", shape.expect))
        read = tuple(step for step in steps if step is not None)
        if not self._problems.found and not any(isinstance(step, Expect) for step in read):
            self._problems.add("", "field_missing", "nothing is expected; end the test with `expect: {result: [...]}`")
        return read

    def _step(self, pointer: str, step: Any) -> Step | None:
        if step == "restart":
            return Restart(pointer)
        if not isinstance(step, dict) or len(step) != 1:
            self._problems.add(pointer, "wrong_type", f"{_STEPS}: one of them a step")
            return None
        ((name, value),) = step.items()
        inside = pointer + pointer_of((name,))
        if name == "expect":
            return self._expect(inside, value)
        if name in ("advance", "now"):
            return self._wait(inside, value, is_relative=name == "advance")
        if name == "restart" and value is None:
            return Restart(inside)
        if name not in self._sources:
            known = ", ".join(self._sources) or "none"
            self._problems.add(inside, "unknown_relation", f"there is no source {name!r} (sources: {known}); {_STEPS}")
            return None
        return Append(inside, name, tuple(value) if isinstance(value, list) else (value,), isinstance(value, list))

    def _wait(self, pointer: str, value: Any, *, is_relative: bool) -> Wait | None:
        try:
            until_ms = self._now_ms + parse_duration(str(value)) if is_relative else milliseconds(value)
        except ValueError as error:
            self._problems.add(pointer, "duration_malformed", str(error))
            return None
        if until_ms is None:
            self._problems.add(pointer, "invalid_value", f"write a time such as {START}")
        elif until_ms < self._now_ms:
            self._problems.add(pointer, "invalid_value", "the wall clock never goes back (T5)")
        else:
            self._now_ms = until_ms
            return Wait(pointer, until_ms)
        return None

    def _expect(self, pointer: str, value: Any) -> Expect | None:
        if not isinstance(value, dict) or not value:
            self._problems.add(pointer, "wrong_type", "write what is expected of which result: {result: [row, …]}")
            return None
        wanted: list[Expectation] = []
        for name, given in value.items():
            inside = pointer + pointer_of((name,))
            subject = self._subjects.get(name)
            if subject is None:
                known = ", ".join(dict.fromkeys(each.name for each in self._subjects.values()))
                self._problems.add(inside, "unknown_relation", f"there is no result and no source {name!r}; there are {known}")
            else:
                wanted.append(read_expectation(inside, subject, given, self._problems))
        return Expect(pointer, tuple(wanted))

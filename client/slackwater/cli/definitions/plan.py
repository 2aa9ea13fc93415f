"""The plan: what leads from what the service has to what the files say. The service compares; here is what is missing in the files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

from slackwater.answer_list import ComparedItem, QueryAnswer, RelationAnswer
from slackwater.blocking.client import Client
from slackwater.cli.definitions.files import Wanted
from slackwater.cli.naming import inputs_of, result_of
from slackwater.errors import NotFound

Action = Literal["create", "no_op", "in_place", "repartition", "needs_new_state", "delete", "refused"]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do.

    Attributes:
        kind: ``stream``, ``table`` or ``query``; ``sql`` of a statement that cannot be read.
        wanted: of the files; None: it is deleted.
        item: what the service says of it; None: it is deleted.
        before: the definition in force, of what is changed.
        problems: why it cannot be done.
    """

    action: Action
    kind: str
    name: str
    wanted: Wanted | None = None
    item: ComparedItem | None = None
    before: Mapping[str, Any] | None = None
    problems: tuple[str, ...] = ()

    def json(self) -> dict[str, Any]:
        """Return it as ``--json`` shows it."""
        item = self.item
        return {
            "action": self.action,
            "kind": self.kind,
            "name": self.name,
            "file": None if self.wanted is None else str(self.wanted.file),
            "line": None if self.wanted is None else self.wanted.line,
            "changes": [] if item is None else [each.raw for each in item.changes],
            "effects": [] if item is None else [each.raw for each in item.effects],
            "warnings": [] if item is None else [each.raw for each in item.warnings],
            "problems": list(self.problems),
        }

    @property
    def sign(self) -> tuple[str, str, tuple[str, ...]]:
        """What must be the same when it is done as when it was shown."""
        pointers = () if self.item is None else tuple(change.pointer for change in self.item.changes)
        return self.action, f"{self.kind} {self.name}", pointers


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in the order in which they are done."""

    steps: tuple[Step, ...] = field(default=())

    def of(self, *actions: Action) -> list[Step]:
        """Return the steps of some kinds."""
        return [step for step in self.steps if step.action in actions]

    @property
    def changes(self) -> list[Step]:
        """What is to be done."""
        return [step for step in self.steps if step.action != "no_op"]

    @property
    def is_refused(self) -> bool:
        """Whether something of it cannot be done."""
        return any(step.problems for step in self.steps)

    @property
    def sign(self) -> tuple[Any, ...]:
        """What must be the same when it is done as when it was shown."""
        return tuple(step.sign for step in self.steps)

    def json(self) -> dict[str, Any]:
        """Return it as ``--json`` shows it."""
        counts = {
            action: len(self.of(action))
            for action in ("create", "in_place", "repartition", "needs_new_state", "delete", "no_op", "refused")
        }
        return {"steps": [step.json() for step in self.steps], "counts": counts}


def plan_of(client: Client, wanted: Sequence[Wanted], *, prune: bool = False, patterns: Sequence[str] = ()) -> Plan:
    """Ask the service what carrying the files out would do.

    Args:
        client: of the service.
        wanted: see ``read_files``.
        prune: what is not in the files is deleted.
        patterns: of names that may be deleted; none: all.
    """
    items = client.compare([each.body() for each in wanted]).items
    steps = [_step(client, wanted[item.index], item) for item in items]
    return Plan((*steps, *(_deletions(client, steps, patterns) if prune else ())))


def _step(client: Client, wanted: Wanted, item: ComparedItem) -> Step:
    problems = tuple(
        f"{each.detail} ({each.code})" if each.pointer in ("", "/sql") else f"{each.pointer}: {each.detail} ({each.code})"
        for each in item.problems
    )
    name = item.name or wanted.name or wanted.place
    kind = item.kind or wanted.kind
    action: Action = "refused" if item.action is None else item.action
    before = _before(client, kind, name) if action in ("in_place", "repartition", "needs_new_state") else None
    return Step(action, kind, name, wanted, item, before, problems)


def _before(client: Client, kind: str, name: str) -> Mapping[str, Any] | None:
    try:
        if kind == "query":
            found: Mapping[str, Any] = client.query(name).info().definition
        else:
            found = (client.table(name) if kind == "table" else client.stream(name)).info().definition or {}
    except NotFound:
        return None
    return found


def _deletions(client: Client, steps: Sequence[Step], patterns: Sequence[str]) -> list[Step]:
    """Return what is deleted since the files do not have it: readers before what they read."""
    if any(step.action == "refused" for step in steps):
        return []  # what a statement that cannot be read defines is not known
    queries = [each for each in client.queries.list() if not each.internal]
    relations = [each for each in (*client.streams(), *client.tables()) if each.produced_by is None]
    return deletions(steps, queries, relations, patterns)


def deletions(
    steps: Sequence[Step], queries: Iterable[QueryAnswer], relations: Iterable[RelationAnswer], patterns: Sequence[str]
) -> list[Step]:
    """Return what is there and not in the files.

    Args:
        steps: of what the files have.
        queries: all that are there.
        relations: all that no query writes.
        patterns: of names that may be deleted; none: all.
    """
    defined = {(step.kind, step.name) for step in steps}
    listed = list(queries)
    going = {each.name: each for each in listed if ("query", each.name) not in defined and _is_meant(each.name, patterns)}
    staying = {each.name: inputs_of(each.definition) for each in listed if each.name not in going}
    staying |= {
        step.name: inputs_of(step.item.definition or {}) for step in steps if step.kind == "query" and step.item is not None
    }
    found = [
        Step("delete", "query", query.name, problems=_stays(result_of(query.definition), staying))
        for query in _readers_first(going)
    ]
    found += [
        Step("delete", relation.kind, relation.name, problems=_stays(relation.name, staying))
        for relation in relations
        if (relation.kind, relation.name) not in defined and _is_meant(relation.name, patterns)
    ]
    return found


def _is_meant(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _stays(relation: str, readers: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    names = [query for query, inputs in readers.items() if relation in inputs]
    return (
        (f"{relation} is read by {', '.join(sorted(names))}, which stays: keep its definition, or delete that too",)
        if names
        else ()
    )


def _readers_first(queries: Mapping[str, QueryAnswer]) -> list[QueryAnswer]:
    writers = {result_of(query.definition): query for query in queries.values()}
    done: dict[str, QueryAnswer] = {}

    def take(query: QueryAnswer, above: frozenset[str]) -> None:
        if query.name in done or query.name in above:
            return
        for name in inputs_of(query.definition):
            if name in writers:
                take(writers[name], above | {query.name})
        done[query.name] = query

    for query in queries.values():
        take(query, frozenset())
    return list(reversed(done.values()))

"""The plan: the steps from the definitions of the service to those of the files. The service compares; this adds deletions.

A step is carried out by one request or two; the plan as a whole is no transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

from slackwater.answers.answer_list import ComparedItem, QueryAnswer, RelationAnswer
from slackwater.blocking.client import Client
from slackwater.cli.definitions.files import FileDefinition
from slackwater.cli.options.failing import FAILED, UsageError
from slackwater.cli.options.naming import inputs_of, requests_about, result_of
from slackwater.cli.statements import as_replacing
from slackwater.errors import NotFound

Action = Literal["create", "no_op", "in_place", "repartition", "needs_new_state", "delete", "refused"]


@dataclass(frozen=True, slots=True)
class Step:
    """One change.

    Attributes:
        kind: ``stream``, ``table`` or ``query``; ``sql`` for a statement that cannot be parsed.
        wanted: the definition of the files; None: a deletion.
        item: the service's comparison; None: a deletion.
        before: the current definition, for a change.
        problems: why it cannot be done.
    """

    action: Action
    kind: str
    name: str
    wanted: FileDefinition | None = None
    item: ComparedItem | None = None
    before: Mapping[str, Any] | None = None
    problems: tuple[str, ...] = ()

    def json(self) -> dict[str, Any]:
        """Return it in the form of ``--json``."""
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
        """The parts that must not change between showing and executing the plan."""
        pointers = () if self.item is None else tuple(change.pointer for change in self.item.changes)
        return self.action, f"{self.kind} {self.name}", pointers


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in the order of execution."""

    steps: tuple[Step, ...] = field(default=())

    def of(self, *actions: Action) -> list[Step]:
        """Return the steps of some kinds."""
        return [step for step in self.steps if step.action in actions]

    @property
    def changes(self) -> list[Step]:
        """The steps that change something."""
        return [step for step in self.steps if step.action != "no_op"]

    @property
    def is_refused(self) -> bool:
        """Whether a step cannot be done."""
        return any(step.problems for step in self.steps)

    @property
    def sign(self) -> tuple[Any, ...]:
        """The parts that must not change between showing and executing the plan."""
        return tuple(step.sign for step in self.steps)

    def json(self) -> dict[str, Any]:
        """Return it in the form of ``--json``."""
        counts = {
            action: len(self.of(action))
            for action in ("create", "in_place", "repartition", "needs_new_state", "delete", "no_op", "refused")
        }
        return {"steps": [step.json() for step in self.steps], "counts": counts}


def plan_of(client: Client, wanted: Sequence[FileDefinition], *, prune: bool = False, patterns: Sequence[str] = ()) -> Plan:
    """Ask the service what applying the files would do.

    Args:
        client: of the service.
        wanted: see ``read_files``.
        prune: delete what is not in the files.
        patterns: of names that may be deleted; none: all.
    """
    items = compared(client, [each.body() for each in wanted])
    steps = [_step(client, wanted[item.index], item) for item in items]
    return Plan((*steps, *(_deletions(client, steps, patterns) if prune else ())))


def compared(client: Client, wanted: Sequence[Mapping[str, Any]]) -> tuple[ComparedItem, ...]:
    """Ask the service what applying definitions would do.

    Raises:
        UsageError: the service is too old for this question.
    """
    try:
        return client.compare(wanted).items
    except NotFound as error:
        if error.code != "not_found":
            raise
        version = client.system.version().version
        cure = "upgrade the service, or use the command line of its version"
        raise UsageError(f"the service ({version}) compares no definitions yet", cure, FAILED) from error


def _step(client: Client, wanted: FileDefinition, item: ComparedItem) -> Step:
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
            found = requests_about(client, kind, name).info().definition or {}
    except NotFound:
        return None
    return found


def _deletions(client: Client, steps: Sequence[Step], patterns: Sequence[str]) -> list[Step]:
    """Return deletions of what the files do not have: readers before their inputs."""
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
    wanted = {step.name: step.item.definition or {} for step in steps if step.kind == "query" and step.item is not None}
    there = {each.name: each.definition for each in queries}
    reads = _reads({**there, **wanted})
    going = [name for name in there if ("query", name) not in defined and is_meant(name, patterns)]
    staying = {name: inputs for name, inputs in reads.items() if name not in going}
    found = [
        Step("delete", "query", name, problems=_stays(result_of(there[name]), staying))
        for name in _readers_first(going, there, reads)
    ]
    found += [
        Step("delete", relation.kind, relation.name, problems=_stays(relation.name, staying))
        for relation in relations
        if (relation.kind, relation.name) not in defined and is_meant(relation.name, patterns)
    ]
    return found


def _reads(definitions: Mapping[str, Mapping[str, Any]]) -> dict[str, frozenset[str]]:
    """Return what each query reads: who reads a stream reads what others append to it, and who appends to it needs it to be there."""
    parts: dict[str, list[str]] = {}
    for definition in definitions.values():
        if target := definition.get("into", {}).get("append_to"):
            parts.setdefault(target, []).append(result_of(definition))
    found = {}
    for name, definition in definitions.items():
        inputs = inputs_of(definition)
        appended = definition.get("into", {}).get("append_to")
        more = [part for each in inputs for part in parts.get(each, ())]
        found[name] = frozenset({*inputs, *more, *([appended] if appended else [])})
    return found


def is_meant(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a name fits one of some patterns; without patterns each does."""
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _stays(relation: str, readers: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    names = [query for query, inputs in readers.items() if relation in inputs]
    return (
        (f"{relation} is read by {', '.join(sorted(names))}, which stays: keep its definition, or delete that too",)
        if names
        else ()
    )


def _readers_first(
    going: Sequence[str], definitions: Mapping[str, Mapping[str, Any]], reads: Mapping[str, Collection[str]]
) -> list[str]:
    writers = {result_of(definitions[name]): name for name in going}
    done: dict[str, None] = {}

    def take(name: str, above: frozenset[str]) -> None:
        if name in done or name in above:
            return
        for each in sorted(reads[name]):
            if each in writers:
                take(writers[each], above | {name})
        done[name] = None

    for name in going:
        take(name, frozenset())
    return list(reversed(done))


def carry_out(client: Client, plan: Plan) -> Iterator[Step]:
    """Do every step that changes something; yields each once it is done.

    Raises:
        ServiceError: a step was refused; those before it are done.
    """
    for step in plan.changes:
        _do(client, step)
        yield step


def _do(client: Client, step: Step) -> None:
    if step.action == "delete":
        if step.kind == "query":
            client.query(step.name).delete()
        else:
            requests_about(client, step.kind, step.name).delete()
        return
    item = step.item
    if item is None:
        raise ValueError(f"{step.name} has nothing to be carried out")
    # Without the desired state: a statement says none, so who has paused a query has paused it.
    definition: Mapping[str, Any] = {name: value for name, value in (item.definition or {}).items() if name != "desired_state"}
    if step.wanted is not None and step.wanted.definition is not None:
        definition = step.wanted.definition  # what the file says, so that what it leaves open stays open
    if item.statement is None or _is_put(step):
        _put(client, step, definition)
    if item.statement is not None and not _is_put(step):
        if step.action == "needs_new_state":
            _put(client, step, definition)  # a statement says it in its own words only; what comes then changes nothing more
        client.sql(item.statement if step.action == "create" else as_replacing(item.statement), properties=item.properties)


def _is_put(step: Step) -> bool:
    """Whether a statement cannot replace what it has made: CREATE SOURCE … and INSERT INTO … are changed by their definition."""
    statement = None if step.wanted is None else step.wanted.statement
    return step.action != "create" and statement is not None and (statement.is_source or statement.target is not None)


def _put(client: Client, step: Step, definition: Mapping[str, Any]) -> None:
    body = dict(definition)
    if step.kind == "query":
        client.query(step.name).edit({**body, "name": step.name}, discard_state=step.action == "needs_new_state")
    else:
        requests_about(client, step.kind, step.name).register(body)

"""Reading a body as a definition so that every fault is found at once.

Shape first: what pydantic finds. Then what is wrong is set right or left out in a copy, so that the definition's own rules can be applied
to the rest: a misspelt field counts as the one that was meant, a value of the wrong shape as absent. What is only wrong because
something else was left out is not reported.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from engine.definition.problems import ShapeFault, faults_of, pointer_of
from engine.errors import Problem

MAX_ROUNDS = 20
"""Each sets right what one validation found; deeper faults show in the next."""

Path = tuple[str | int, ...]
Model = TypeVar("Model", bound=BaseModel)

STAND_INS: Mapping[str, Any] = {"name": "unnamed", "into": {"stream": "unnamed"}}
"""For what every query has, where it cannot be read."""

_MEMBERS = frozenset({"joins", "group_by", "aggregate", "select", "columns", "key"})
"""Parts whose members stand for themselves: a wrong one says nothing about the next."""

_DEPENDENTS: Mapping[str, tuple[str, ...]] = {
    "from": (
        "from",
        "start",
        "joins",
        "where",
        "group_by",
        "window",
        "aggregate",
        "having",
        "suppress",
        "select",
        "into",
        "late_records",
    ),
    "window": ("group_by", "having", "suppress", "select", "into"),
    "group_by": ("group_by", "having", "suppress", "select", "into"),
    "aggregate": ("group_by", "having", "suppress", "select", "into"),
    "joins": ("suppress", "into", "late_records", "start"),
    "select": ("into",),
    "columns": ("key", "event_time", "event_time_unit", "event_time_format", "connector"),
    "event_time": ("event_time_unit", "event_time_format", "conflict"),
    "versioned": ("conflict",),
}
"""Part that was left out → parts about which nothing can be said then."""

_FOLLOWING = frozenset({"unknown_column", "ambiguous_column", "aggregate_unnamed", "join_key_mismatch"})
"""Codes of what may be wrong only because something that names columns was left out."""

_NAMING = frozenset({"from", "joins", "group_by", "aggregate", "columns", "window", "as", "table", "stream"})


@dataclass
class Reading(Generic[Model]):
    """What could be read of a body.

    Attributes:
        definition: what could be understood; None where too little could.
        problems: what is wrong with the shape, at the pointers of the body.
    """

    definition: Model | None
    problems: list[Problem]
    _work: _Work = field(repr=False)

    def with_rules(self, found: Iterable[Problem]) -> list[Problem]:
        """Return every problem: those of the shape, and those that rules found in ``definition``, at the pointers of the body."""
        known = {problem.pointer for problem in self.problems}
        placed = [self._work.placed(problem) for problem in found]
        return [*self.problems, *(problem for problem in placed if problem is not None and problem.pointer not in known)]


def read_definition(model: type[Model], body: Any) -> Reading[Model]:
    """Read a body; never fails."""
    try:
        return Reading(model.model_validate(body), [], _Work(body))
    except ValidationError as error:
        shape = faults_of(error, model)
    if not all(fault.path for fault in shape):  # nothing can be set right; copying what may be very large is for nothing
        return Reading(None, [fault.problem for fault in shape], _Work(None))
    try:
        work = _Work(copy.deepcopy(body))
    except RecursionError:  # too deep to be set right
        return Reading(None, [fault.problem for fault in shape], _Work(None))
    for _ in range(MAX_ROUNDS):
        try:
            return Reading(model.model_validate(work.value), work.problems, work)
        except ValidationError as error:
            if not work.repair(faults_of(error, model)):
                break
    return Reading(None, work.problems, work)


@dataclass
class _Work:
    """A copy of a body that is set right step by step, and where each part of it stood.

    Attributes:
        origins: id of a container → key in it now → key in the body, where they differ. Containers are kept, so that ids stay theirs.
        left_out: places of the body that were left out.
    """

    value: Any
    problems: list[Problem] = field(default_factory=list)
    origins: dict[int, dict[str | int, str | int]] = field(default_factory=dict)
    left_out: set[Path] = field(default_factory=set)
    kept: list[Any] = field(default_factory=list)

    def repair(self, faults: list[ShapeFault]) -> bool:
        """Note faults and set right what they are about. Returns whether there is something left to read."""
        known = {problem.pointer for problem in self.problems}
        for fault in faults:
            problem = Problem(pointer_of(self.original(fault.path)), fault.code, fault.problem.detail)
            if problem.pointer not in known and not self._is_made(fault.path):
                self.problems.append(problem)
        is_readable = isinstance(self.value, dict) and all(fault.path for fault in faults)
        # Lists from behind, so that places before stay what they are.
        if not is_readable:
            return False
        mended = [self._mend(fault) for fault in sorted(faults, key=_from_behind, reverse=True)]
        return all(mended)

    def _is_made(self, path: Path) -> bool:
        return any(self.original(path)[: len(part)] == part for part in self.left_out)

    def _mend(self, fault: ShapeFault) -> bool:
        path, parent = fault.path, self._at(fault.path[:-1])
        if fault.code == "field_missing" and len(path) > 1 and isinstance(parent, dict) and path[-1] not in parent:
            return self._leave_out(path[:-1])
        if fault.code == "unknown_field" and isinstance(parent, dict) and path[-1] in parent:
            given = parent.pop(path[-1])
            if fault.meant is not None and fault.meant not in parent:
                parent[fault.meant] = given
                self._names(parent)[fault.meant] = path[-1]
            return True
        return self._leave_out(path)

    def _leave_out(self, path: Path) -> bool:
        parent, last = self._at(path[:-1]), path[-1]
        own = self.original(path)
        self.left_out.add(own)
        if isinstance(parent, list) and isinstance(last, int) and last < len(parent):
            names = {place: self._names(parent).get(place, place) for place in range(len(parent))}
            self.kept.append(parent.pop(last))
            self.origins[id(parent)] = {place: names[place + (place >= last)] for place in range(len(parent))}
            return True
        if isinstance(parent, dict):
            was_there = last in parent
            self.kept.append(parent.pop(last, None))
            if len(path) == 1 and last in STAND_INS:
                parent[last] = copy.deepcopy(STAND_INS[str(last)])
                return True
            return was_there
        return bool(path[:-1]) and self._leave_out(path[:-1])

    def _names(self, container: Any) -> dict[str | int, str | int]:
        self.kept.append(container)
        return self.origins.setdefault(id(container), {})

    def _at(self, path: Path) -> Any:
        value = self.value
        for part in path:
            if isinstance(value, list) and isinstance(part, int) and part < len(value):
                value = value[part]
            else:
                value = value.get(part) if isinstance(value, dict) else None
        return value

    def original(self, path: Path) -> Path:
        """Return where a part of the copy stood in the body."""
        return tuple(self.origins.get(id(self._at(path[:place])), {}).get(part, part) for place, part in enumerate(path))

    def placed(self, problem: Problem) -> Problem | None:
        """Return what a rule found at the pointer of the body; None where it may follow from what was left out."""
        path: Path = ()
        for text in problem.pointer.split("/")[1:]:
            part = text.replace("~1", "/").replace("~0", "~")
            path = (*path, int(part) if isinstance(self._at(path), list) and part.isdigit() else part)
        own = self.original(path)
        if any(_follows(own, problem.code, part) for part in self.left_out):
            return None
        return Problem(pointer_of(own), problem.code, problem.detail)


def _from_behind(fault: ShapeFault) -> tuple[tuple[int, int | str], ...]:
    return tuple((0, part) if isinstance(part, int) else (1, part) for part in fault.path)


def _follows(path: Path, code: str, left_out: Path) -> bool:
    """Whether a problem at a place may be there only because another place was left out."""
    part = left_out[:2] if left_out[0] in _MEMBERS else left_out[:1]
    if path[: len(part)] == part or part[: len(path)] == path or path[0] in _DEPENDENTS.get(str(part[0]), ()):
        return True
    return code in _FOLLOWING and part[0] in _NAMING and (len(left_out) <= len(part) or left_out[len(part)] in _NAMING)

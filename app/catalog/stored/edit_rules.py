"""What an edit of a query does to its state: nothing, nothing that state would mind, or a new beginning. Pure.

Whether kept state fits is decided by comparing plans (``engine.plan.fingerprint``); the rules here say which part of an edit is the
reason, and what happens to what the query holds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from app.errors.app_errors import Conflict, Fault


class EditKind(StrEnum):
    """How far an edit reaches. One that shares the state out among other tasks is otherwise one in place."""

    NO_OP = "no_op"
    IN_PLACE = "in_place"
    REPARTITION = "repartition"
    NEEDS_NEW_STATE = "needs_new_state"


@dataclass(frozen=True, slots=True)
class Change:
    """One part of a definition that differs.

    Attributes:
        pointer: JSON pointer of the part.
        kind: how far this part reaches; never a no-op.
        reason: what becomes of what is held, or why that cannot be used.
    """

    pointer: str
    kind: EditKind
    reason: str


@dataclass(frozen=True, slots=True)
class Edit:
    """A classified edit.

    Attributes:
        kind: how far it reaches.
        changes: what differs.
    """

    kind: EditKind
    changes: tuple[Change, ...]

    @property
    def pointers(self) -> tuple[str, ...]:
        """JSON pointers of the parts that differ."""
        return tuple(change.pointer for change in self.changes)

    def refusal(self, query: str) -> Conflict:
        """Return the error for an edit that would throw state away unasked."""
        needing = [change for change in self.changes if change.kind is EditKind.NEEDS_NEW_STATE]
        return Conflict(
            "state_incompatible",
            f"query '{query}' keeps state that this definition cannot use; repeat the request with ?state=discard (a statement: WITH (STATE = "
            "'DISCARD')) to start again from the beginning of its inputs, or create a second query beside it",
            [Fault(change.pointer, change.kind.value, change.reason) for change in needing],
        )


# The desired state is changed by PUT …/desired-state; in a definition it only says how a new query starts.
_DESIRED_STATE = "desired_state"

_TASKS = "/tasks"

_WAITING = "what waits stays; what is due under the new value goes with the next record, or at once with ?flush=now"
_CLOSING = (
    "what has closed stays closed and is never shown again; what is closed under the new value closes with the next record, or at once "
    "with ?flush=now"
)
_SHARED_OUT = (
    "the state is kept: the next launch shares it out among the tasks by key, before it reads on; a running query is restarted for that. "
    "Tasks that come together go on with the latest of their stream times: what is due by it goes with the next record"
)
_FROM_NOW_ON = "concerns what is handled from now on"
_ADDED = "columns that are new are null in what was written before, until it changes"
_DELIVERED = (
    "a new delivery begins, from where its `start` says; what was delivered stays where it is. Where `every` alone changes, the delivery "
    "goes on; with null it ends"
)
# Parts that only say how long, how many or what then. Where both values must be there, having none at all is another kind of state.
_IN_PLACE: tuple[tuple[str, bool, str], ...] = (
    (r"/joins/\d+/grace", True, _WAITING),
    (r"/joins/\d+/(late|expired)", False, _FROM_NOW_ON),
    (r"/joins/\d+/hold/\w+", False, "what is held stays; the new bounds are looked at with the next batch"),
    (r"/joins/\d+/within/grace", True, _CLOSING),
    (r"/joins/\d+/unversioned_ok", False, "is a permission and changes no result"),
    (r"/window/grace", True, _CLOSING),
    (r"/window/retention", True, "limits reads only: windows beyond it are removed with the next commit; those removed do not come back"),
    (r"/suppress/limit", True, "what is held stays; by event time the new limit holds for it too, by wall clock for what comes from now on"),
    (r"/suppress/buffer(/\w+)?", False, "what is held stays; the new bounds are looked at after the next change"),
    (r"/suppress/event_driven", False, _FROM_NOW_ON),
    (r"/idle(/after)?", False, _FROM_NOW_ON),
    (r"/into/connector(/.*)?", False, _DELIVERED),
    (r"/into/retention", False, "records older than a shorter retention are removed; what is gone does not come back"),
    (r"/into/versioned/history_retention", True, "versions beyond a shorter retention can no longer be read"),
    (_TASKS, False, _SHARED_OUT),
    (r"/late_records/\w+", False, "limits reads only: what is beyond it is removed when the next late record is kept"),
)  # fmt: skip
_NEW_STATE: tuple[tuple[str, str], ...] = (
    (r"/joins/\d+/grace", "only a join with a grace keeps a buffer and a buffer time"),
    (r"/joins/\d+/hold", "only a join with a hold keeps what the grace released"),
    (r"/joins.*", "the join's state holds other records, or holds them by another key"),
    (r"/from.*", "what was read by another input or filter is in every part of the state"),
    (r"/where", "records that another filter let through are in the state"),
    (r"/start", "reading has begun elsewhere"),
    (r"/(group_by|window|aggregate).*", "partial results are kept by other groups, windows or aggregates"),
    (r"/(having|select).*", "rows that were shown before would have to be shown again"),
    (r"/suppress.*", "what is held is kept in another form, or not at all"),
    (r"/into/versioned/history_retention", "versions that the shorter retention has dropped cannot be brought back"),
    (r"/into.*", "results that were written before would be missing"),
)  # fmt: skip


_TEXTS: Final = re.compile(r"/(from/where|joins/\d+/on|where|group_by/\d+|aggregate/[^/]+|having|select/[^/]+)")
"""Parts that are expressions: the same can be written in many ways."""


def classify(
    stored: Mapping[str, Any], wanted: Mapping[str, Any], *, is_state_compatible: bool, is_plan_the_same: bool = False
) -> Edit:
    """Classify the change from one normalised definition (every default spelled out) to another.

    Args:
        stored: the definition in force.
        wanted: the one asked for.
        is_state_compatible: whether kept state fits both plans.
        is_plan_the_same: whether both plans are equal: expressions that are written otherwise change nothing then, and stay as they are.
    """
    before, after = without_desired_state(stored), without_desired_state(wanted)
    pointers = differences(before, after)
    if not pointers or (is_plan_the_same and all(map(_TEXTS.fullmatch, pointers))):
        return Edit(EditKind.NO_OP, ())
    in_place = {pointer: _in_place(pointer, before, after) for pointer in pointers}
    if is_state_compatible:
        changes = [_fitting(pointer, reason or _fitting_reason(pointer)) for pointer, reason in in_place.items()]
        kinds = {change.kind for change in changes}
        return Edit(EditKind.REPARTITION if EditKind.REPARTITION in kinds else EditKind.IN_PLACE, tuple(changes))
    # Where only parts that could change in place differ, an input has changed since, and each of them is as good a reason.
    is_any_other = any(reason is None for reason in in_place.values())
    changes = [
        Change(pointer, EditKind.NEEDS_NEW_STATE, _new_state(pointer)) if reason is None or not is_any_other
        else _fitting(pointer, reason)
        for pointer, reason in in_place.items()
    ]  # fmt: skip
    return Edit(EditKind.NEEDS_NEW_STATE, tuple(changes))


def _fitting(pointer: str, reason: str) -> Change:
    return Change(pointer, EditKind.REPARTITION if pointer == _TASKS else EditKind.IN_PLACE, reason)


def _fitting_reason(pointer: str) -> str:
    return _ADDED if pointer.startswith("/select") else _FROM_NOW_ON


def _in_place(pointer: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str | None:
    for pattern, needs_both, reason in _IN_PLACE:
        if re.fullmatch(pattern, pointer):
            has_both = value_at(before, pointer) is not None and value_at(after, pointer) is not None
            return reason if has_both or not needs_both else None
    return None


def _new_state(pointer: str) -> str:
    found = next((reason for pattern, reason in _NEW_STATE if re.fullmatch(pattern, pointer)), None)
    return found or "kept state was built with another value here"


def value_at(definition: object, pointer: str) -> Any:
    """Return the value at a JSON pointer; None where there is none."""
    value: Any = definition
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and name.isdecimal():
            value = value[int(name)] if int(name) < len(value) else None
        else:
            value = value.get(name) if isinstance(value, Mapping) else None
    return value


def without_desired_state(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return the definition without its desired state."""
    return {name: value for name, value in definition.items() if name != _DESIRED_STATE}


def differences(left: object, right: object, pointer: str = "") -> list[str]:
    """Return the JSON pointers at which two JSON values differ, the deepest that tell it apart."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        if left.keys() == right.keys() and list(left) != list(right):
            return [pointer]  # the order of columns is the order of the result
        found: list[str] = []
        for name in (*left, *(name for name in right if name not in left)):
            below = f"{pointer}/{str(name).replace('~', '~0').replace('/', '~1')}"
            found += [below] if name not in left or name not in right else differences(left[name], right[name], below)
        return found
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        return [p for i, pair in enumerate(zip(left, right, strict=True)) for p in differences(*pair, f"{pointer}/{i}")]
    return [] if type(left) is type(right) and left == right else [pointer]

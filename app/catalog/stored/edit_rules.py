"""The effect of a query's edit on its state: none, a change in place, or new state. Pure.

A comparison of plans decides whether the stored state fits (``engine.plan.fingerprint``). The rules here name the part of an edit that is the
reason, and say what happens to the stored data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from app.errors.app_errors import Conflict, Fault


class EditKind(StrEnum):
    """The reach of an edit. A repartition is an edit in place that also divides the state among another number of tasks."""

    NO_OP = "no_op"
    IN_PLACE = "in_place"
    REPARTITION = "repartition"
    NEEDS_NEW_STATE = "needs_new_state"


@dataclass(frozen=True, slots=True)
class Change:
    """One part of a definition that differs.

    Attributes:
        kind: reach of this part; never a no-op.
        reason: what happens to the stored data, or why it cannot be used.
    """

    pointer: str
    kind: EditKind
    reason: str


@dataclass(frozen=True, slots=True)
class Edit:
    """A classified edit."""

    kind: EditKind
    changes: tuple[Change, ...]

    @property
    def pointers(self) -> tuple[str, ...]:
        return tuple(change.pointer for change in self.changes)

    def refusal(self, query: str) -> Conflict:
        """Return the error for an edit that needs new state without permission to discard the old one."""
        needing = [change for change in self.changes if change.kind is EditKind.NEEDS_NEW_STATE]
        return Conflict(
            "state_incompatible",
            f"query '{query}' has state that this definition cannot use; repeat the request with ?state=discard (a statement: WITH (STATE = "
            "'DISCARD')) to start again from the beginning of its inputs, or create a second query",
            [Fault(change.pointer, change.kind.value, change.reason) for change in needing],
        )


# PUT …/desired-state changes the desired state; in a definition it is only the initial one.
_DESIRED_STATE = "desired_state"

_TASKS = "/tasks"

_WAITING = "waiting records stay; those due under the new value are emitted with the next record, or at once with ?flush=now"
_CLOSING = (
    "closed windows stay closed and are never shown again; windows closed under the new value close with the next record, or at once "
    "with ?flush=now"
)
_SHARED_OUT = (
    "the state is kept: the next launch divides it among the tasks by key, before it reads on; a running query is restarted for that. "
    "Results do not depend on the number of tasks"
)
_FROM_NOW_ON = "applies to records that are processed from now on"
_BUFFERED = "held updates stay; the new limits apply after the next change"
_ADDED = "new columns are null in earlier results, until these change"
_DELIVERED = (
    "a new delivery begins at its `start`; delivered results stay at the target. If only `every` changes, the delivery continues; with null "
    "it ends"
)
# Parts that only set durations, numbers or policies. For some, both values must be set, because having none needs another kind of state.
_IN_PLACE: tuple[tuple[str, bool, str], ...] = (
    (r"/joins/\d+/grace", True, _WAITING),
    (r"/joins/\d+/(late|expired)", False, _FROM_NOW_ON),
    (r"/joins/\d+/hold/\w+", False, "held records stay; the new limits apply from the next batch on"),
    (r"/joins/\d+/within/grace", True, _CLOSING),
    (r"/joins/\d+/unversioned_ok", False, "this is a permission and changes no result"),
    (r"/window/grace", True, _CLOSING),
    (r"/window/retention", True, "limits reads only: older windows are removed with the next commit, and do not come back"),
    (r"/suppress/limit", True, "held updates stay; by event time the new limit holds for them too, by wall clock only for new updates"),
    (r"/suppress/buffer", True, _BUFFERED),
    (r"/suppress/buffer/\w+", False, _BUFFERED),
    (r"/suppress/event_driven", False, _FROM_NOW_ON),
    (r"/idle(/after)?", False, _FROM_NOW_ON),
    (r"/clock", False, "stream time stays where it is; partitions count from their next record on"),
    (r"/into/connector(/.*)?", False, _DELIVERED),
    (r"/into/retention", False, "records older than a shorter retention are removed; they do not come back"),
    (r"/into/versioned/history_retention", True, "versions beyond a shorter retention can no longer be read"),
    (_TASKS, False, _SHARED_OUT),
    (r"/late_records/\w+", False, "limits reads only: late records beyond it are removed when the next one is stored"),
)  # fmt: skip
_NEW_STATE: tuple[tuple[str, str], ...] = (
    (r"/joins/\d+/grace", "only a join with a grace has a buffer and a buffer time"),
    (r"/joins/\d+/hold", "only a join with a hold has the records that the grace released"),
    (r"/joins.*", "the join's state has other records, or another key"),
    (r"/from.*", "all of the state comes from another input or filter"),
    (r"/where", "the state has records that passed another filter"),
    (r"/start", "the query has started to read at another place"),
    (r"/(group_by|window|aggregate).*", "partial results are stored by other groups, windows or aggregates"),
    (r"/(having|select).*", "earlier rows would have to be computed again"),
    (r"/suppress/buffer", "with a bound all updates are held in one task, without one in each task (S4)"),
    (r"/suppress.*", "held updates are stored in another form, or not at all"),
    (r"/into/versioned/history_retention", "versions that the shorter retention removed cannot be restored"),
    (r"/into.*", "earlier results would be missing"),
)  # fmt: skip


_TEXTS: Final = re.compile(r"/(from/where|joins/\d+/on|where|group_by/\d+|aggregate/[^/]+|having|select/[^/]+)")
"""Parts that are expressions: the same expression can be written in many ways."""


def classify(
    stored: Mapping[str, Any], wanted: Mapping[str, Any], *, is_state_compatible: bool, is_plan_the_same: bool = False
) -> Edit:
    """Classify the change from one normalised definition (every default spelled out) to another.

    Args:
        stored: the definition in force.
        wanted: the new definition.
        is_state_compatible: whether the stored state fits both plans.
        is_plan_the_same: whether both plans are equal; then other texts of expressions change nothing, and the stored ones stay.
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
    # If only parts that can change in place differ, an input has changed since, and each of these parts is given as the reason.
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
    reason_of_pattern = next((reason for pattern, reason in _NEW_STATE if re.fullmatch(pattern, pointer)), None)
    return reason_of_pattern or "the stored state was built with another value here"


def value_at(definition: object, pointer: str) -> Any:
    """Return the value at a JSON pointer; None if it does not exist."""
    value: Any = definition
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and name.isdecimal():
            value = value[int(name)] if int(name) < len(value) else None
        else:
            value = value.get(name) if isinstance(value, Mapping) else None
    return value


def without_desired_state(definition: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in definition.items() if name != _DESIRED_STATE}


def differences(left: object, right: object, pointer: str = "") -> list[str]:
    """Return the JSON pointers at which two JSON values differ, as deep as possible."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        if left.keys() == right.keys() and list(left) != list(right):
            return [pointer]  # the order of columns is the order of the result
        pointers: list[str] = []
        for name in (*left, *(name for name in right if name not in left)):
            below = f"{pointer}/{str(name).replace('~', '~0').replace('/', '~1')}"
            pointers += [below] if name not in left or name not in right else differences(left[name], right[name], below)
        return pointers
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        return [p for i, pair in enumerate(zip(left, right, strict=True)) for p in differences(*pair, f"{pointer}/{i}")]
    return [] if type(left) is type(right) and left == right else [pointer]

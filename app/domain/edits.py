"""What an edit of a query does to its state: nothing, nothing that state would mind, or a new beginning. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from app.errors import Conflict, Fault


class EditKind(StrEnum):
    """How far an edit reaches."""

    NO_OP = "no_op"
    IN_PLACE = "in_place"
    NEEDS_NEW_STATE = "needs_new_state"


@dataclass(frozen=True, slots=True)
class Edit:
    """A classified edit.

    Attributes:
        kind: how far it reaches.
        pointers: JSON pointers of the parts that differ.
    """

    kind: EditKind
    pointers: tuple[str, ...]

    def refusal(self, query: str) -> Conflict:
        """Return the error for an edit that would throw state away unasked."""
        faults = [Fault(pointer, "needs_new_state", "kept state was built with another value here") for pointer in self.pointers]
        return Conflict(
            "state_incompatible",
            f"query '{query}' keeps state that this definition cannot use; repeat the request with ?state=discard to start again from "
            "the beginning of its inputs, or create a second query beside it",
            faults,
        )


# The wish is changed by PUT …/desired-state; in a definition it only says how a new query starts.
_WISH = "desired_state"


def classify(stored: Mapping[str, Any], wanted: Mapping[str, Any], *, is_state_compatible: bool) -> Edit:
    """Classify the change from one normalised definition (every default spelled out) to another.

    Args:
        stored: the definition in force.
        wanted: the one asked for.
        is_state_compatible: whether the state fingerprints of both plans are equal.
    """
    pointers = tuple(differences(without_wish(stored), without_wish(wanted)))
    if not pointers:
        return Edit(EditKind.NO_OP, ())
    return Edit(EditKind.IN_PLACE if is_state_compatible else EditKind.NEEDS_NEW_STATE, pointers)


def without_wish(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return the definition without its desired state."""
    return {name: value for name, value in definition.items() if name != _WISH}


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

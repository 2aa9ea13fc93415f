"""Forks: a fork is a second query that continues from another query's commit. Its definition and its origin. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from app.catalog.stored.edit_rules import Edit, EditKind
from app.errors.app_errors import Conflict, Fault, Unprocessable

DEFINITION = "/definition"
"""Pointer to the edited definition in the body of a request."""


@dataclass(frozen=True, slots=True)
class Fork:
    """The query and the commit that a fork continues from.

    Attributes:
        query_id: of the original.
        query: its name at that time.
        batch_id: its newest batch; None if it had none.
        committed_at: of that batch, RFC 3339; None if it had none.
    """

    query_id: UUID
    query: str
    batch_id: int | None
    committed_at: str | None

    def to_json(self) -> dict[str, Any]:
        return {
            "query_id": str(self.query_id),
            "query": self.query,
            "batch_id": self.batch_id,
            "committed_at": self.committed_at,
        }

    @classmethod
    def of(cls, stored: Mapping[str, Any] | None) -> Fork | None:
        if stored is None:
            return None
        return cls(UUID(stored["query_id"]), stored["query"], stored["batch_id"], stored["committed_at"])


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """The request for a fork.

    Attributes:
        into: name of the relation that it writes; None: from the definition, else the query's own name.
        definition: edited; None: the original's.
        desired_state: None: from the definition.
    """

    name: str
    into: str | None
    definition: Mapping[str, Any] | None
    desired_state: str | None


def forked_definition(original: Mapping[str, Any], request: ForkRequest) -> dict[str, Any]:
    """Return the definition of a fork, unchecked.

    Raises:
        Unprocessable: ``name_mismatch``: the edited definition names another query, another result, or an ``append_to`` of its own.
    """
    definition = dict(original if request.definition is None else request.definition)
    faults: list[Fault] = []
    if definition.get("name") not in (None, original["name"], request.name):
        detail = f"the definition names the query '{definition['name']}', and the request calls the fork '{request.name}'; leave the name out"
        faults.append(Fault(f"{DEFINITION}/name", "name_mismatch", detail))
    into = definition.get("into", original["into"])
    if isinstance(into, Mapping):
        definition["into"] = _own_result(original["into"], into, request, faults)
    if faults:
        raise Unprocessable("name_mismatch", "; ".join(fault.detail for fault in faults), faults)
    definition["name"] = request.name
    if request.desired_state is not None or request.definition is None:
        definition["desired_state"] = request.desired_state or "running"
    return definition


def _own_result(
    original: Mapping[str, Any], into: Mapping[str, Any], request: ForkRequest, faults: list[Fault]
) -> dict[str, Any]:
    """Return ``into`` of a fork: its own relation, which is no part of another stream."""
    kind = "table" if into.get("table") is not None else "stream"
    relation, former = into.get(kind), original.get("table") or original.get("stream")
    if relation is not None and relation != former and request.into is not None and relation != request.into:
        detail = f"the definition writes '{relation}', and `into` of the request is '{request.into}'; leave one of them out"
        faults.append(Fault(f"{DEFINITION}/into/{kind}", "name_mismatch", detail))
    if into.get("append_to") not in (None, original.get("append_to")):
        detail = "a fork appends to no stream, because its records would be in it twice; leave append_to out"
        faults.append(Fault(f"{DEFINITION}/into/append_to", "name_mismatch", detail))
    name_of_result = request.into or (request.name if relation in (None, former) else relation)
    result = {**{name: value for name, value in into.items() if name != "append_to"}, kind: name_of_result}
    if into.get("connector") == original.get("connector") is not None:
        result["connector"] = None  # with the original's target, each result would be delivered twice
    return result


def as_fork(original: Mapping[str, Any], fork: Mapping[str, Any]) -> dict[str, Any]:
    """Return the original's definition with the fork's names: its differences from ``fork`` are the edits."""
    into = {name: value for name, value in original["into"].items() if name != "append_to"}
    kind = "table" if into.get("table") is not None else "stream"
    return {**original, "name": fork["name"], "into": {**into, kind: fork["into"].get(kind) or into[kind]}}


def taken_over(original: Mapping[str, Any], fork: Mapping[str, Any]) -> dict[str, Any]:
    """Return the definition of a fork with the names of the original that it replaces."""
    former, into = original["into"], dict(fork["into"])
    kind = "table" if into.get("table") is not None else "stream"
    into[kind] = former.get("table") or former.get("stream")
    if former.get("append_to") is not None:
        into["append_to"] = former["append_to"]
    return {**fork, "name": original["name"], "into": into}


def place_in_body(pointer: str) -> str:
    """Return the pointer into the body of a request for a pointer into the fork's definition."""
    if pointer == "/name":
        return pointer
    return "/into" if pointer in ("/into/stream", "/into/table") else DEFINITION + pointer


def refusal(edit: Edit, original: str, name: str) -> Conflict:
    needing = [change for change in edit.changes if change.kind is EditKind.NEEDS_NEW_STATE] or list(edit.changes)
    return Conflict(
        "state_incompatible",
        f"the state of query '{original}' does not fit this definition. Fork it with changes that an edit in place allows; for more, fork it "
        f"first and then PUT /v1/queries/{name} with ?state=discard, or create a separate query with POST /v1/queries",
        [Fault(DEFINITION + change.pointer, change.kind.value, change.reason) for change in needing],
    )


def not_possible(detail: str, pointer: str = "") -> Conflict:
    return Conflict("fork_not_possible", detail, [Fault(pointer, "fork_not_possible", detail)])

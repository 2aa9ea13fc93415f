"""What a fork is: a second query that goes on from what another one has committed. Its definition, and where it comes from. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from app.catalog.stored.edit_rules import Edit, EditKind
from app.errors.app_errors import Conflict, Fault, Unprocessable

DEFINITION = "/definition"
"""Where in the body of a request the edited definition stands."""


@dataclass(frozen=True, slots=True)
class Fork:
    """Which commit of which query a query has gone on from.

    Attributes:
        query_id: the query.
        query: its name then.
        batch_id: its newest batch; None: it had committed none.
        committed_at: when, RFC 3339; None as above.
    """

    query_id: UUID
    query: str
    batch_id: int | None
    committed_at: str | None

    def to_json(self) -> dict[str, Any]:
        """Return the form in which it is stored."""
        return {
            "query_id": str(self.query_id),
            "query": self.query,
            "batch_id": self.batch_id,
            "committed_at": self.committed_at,
        }

    @classmethod
    def of(cls, stored: Mapping[str, Any] | None) -> Fork | None:
        """Read what ``to_json`` made."""
        if stored is None:
            return None
        return cls(UUID(stored["query_id"]), stored["query"], stored["batch_id"], stored["committed_at"])


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """What a request for a fork says.

    Attributes:
        name: of the new query.
        into: name of the relation that it writes; None: what the definition says, else the query's own name.
        definition: edited; None: the original's.
        desired_state: None: what the definition says.
    """

    name: str
    into: str | None
    definition: Mapping[str, Any] | None
    desired_state: str | None


def forked_definition(original: Mapping[str, Any], request: ForkRequest) -> dict[str, Any]:
    """Return the definition of a fork, unchecked.

    Args:
        original: definition of the query that is forked, with every default spelled out.
        request: what was asked for.

    Raises:
        Unprocessable: ``name_mismatch``: the edited definition names another query, another result, or an ``append_to`` of its own.
    """
    wanted = dict(original if request.definition is None else request.definition)
    faults: list[Fault] = []
    if wanted.get("name") not in (None, original["name"], request.name):
        detail = f"the definition names the query '{wanted['name']}', and the fork is to be called '{request.name}'; leave the name out"
        faults.append(Fault(f"{DEFINITION}/name", "name_mismatch", detail))
    into = wanted.get("into", original["into"])
    if isinstance(into, Mapping):
        wanted["into"] = _own_result(original["into"], into, request, faults)
    if faults:
        raise Unprocessable("name_mismatch", "; ".join(fault.detail for fault in faults), faults)
    wanted["name"] = request.name
    if request.desired_state is not None or request.definition is None:
        wanted["desired_state"] = request.desired_state or "running"
    return wanted


def _own_result(
    original: Mapping[str, Any], into: Mapping[str, Any], request: ForkRequest, faults: list[Fault]
) -> dict[str, Any]:
    """Return ``into`` of a fork: a relation of its own, which is no part of another stream."""
    kind = "table" if into.get("table") is not None else "stream"
    said, former = into.get(kind), original.get("table") or original.get("stream")
    if said is not None and said != former and request.into is not None and said != request.into:
        detail = f"the definition writes '{said}', and `into` beside it says '{request.into}'; leave one of them out"
        faults.append(Fault(f"{DEFINITION}/into/{kind}", "name_mismatch", detail))
    if into.get("append_to") not in (None, original.get("append_to")):
        detail = "a fork appends to no stream, or its records would be there twice; leave append_to out"
        faults.append(Fault(f"{DEFINITION}/into/append_to", "name_mismatch", detail))
    own = request.into or (request.name if said in (None, former) else said)
    found = {**{name: value for name, value in into.items() if name != "append_to"}, kind: own}
    if into.get("connector") == original.get("connector") is not None:
        found["connector"] = None  # delivered to where the original delivers, each result would be there twice
    return found


def as_fork(original: Mapping[str, Any], fork: Mapping[str, Any]) -> dict[str, Any]:
    """Return the definition of the original as if it were the fork's: what differs from ``fork`` then is what was edited."""
    into = {name: value for name, value in original["into"].items() if name != "append_to"}
    kind = "table" if into.get("table") is not None else "stream"
    return {**original, "name": fork["name"], "into": {**into, kind: fork["into"].get(kind) or into[kind]}}


def taken_over(original: Mapping[str, Any], fork: Mapping[str, Any]) -> dict[str, Any]:
    """Return the definition of a fork with the names of the original, in whose place it comes."""
    former, into = original["into"], dict(fork["into"])
    kind = "table" if into.get("table") is not None else "stream"
    into[kind] = former.get("table") or former.get("stream")
    if former.get("append_to") is not None:
        into["append_to"] = former["append_to"]
    return {**fork, "name": original["name"], "into": into}


def place_in_body(pointer: str) -> str:
    """Return where in the body of a request stands what a pointer into the fork's definition leads to."""
    if pointer == "/name":
        return pointer
    return "/into" if pointer in ("/into/stream", "/into/table") else DEFINITION + pointer


def refusal(edit: Edit, original: str, name: str) -> Conflict:
    """Return the error for a fork whose definition the original's state does not fit."""
    needing = [change for change in edit.changes if change.kind is EditKind.NEEDS_NEW_STATE] or list(edit.changes)
    return Conflict(
        "state_incompatible",
        f"what query '{original}' keeps does not fit this definition. Fork it with what an edit in place may change; for more, fork it "
        f"first and PUT /v1/queries/{name} with ?state=discard then, or create a query of its own with POST /v1/queries",
        [Fault(DEFINITION + change.pointer, change.kind.value, change.reason) for change in needing],
    )


def not_possible(detail: str, pointer: str = "") -> Conflict:
    """Return the error for what cannot be forked, or taken over, as it is now."""
    return Conflict("fork_not_possible", detail, [Fault(pointer, "fork_not_possible", detail)])

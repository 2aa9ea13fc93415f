"""Rewinds of a query to an earlier commit: the commit and the obstacles. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from app.access.rules import visible, visible_feed
from app.catalog.queries.fork_rules import DEFINITION
from app.catalog.stored.edit_rules import Edit, EditKind
from app.errors.app_errors import Conflict, Fault, Unprocessable

AT_REST: Final = ("stopped", "paused", "failed")
"""States in which nothing of a query runs or is about to run."""

OVERFLOW: Final = "late_records_overflow"

Positions = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Place:
    """A commit of a query.

    Attributes:
        position: feed → partition → next offset of the input of its results.
    """

    batch_id: int
    committed_at: datetime
    position: Positions
    stream_time_ms: int | None

    def to_json(self) -> dict[str, Any]:
        """Return the form in events and in the audit log."""
        return {"batch_id": self.batch_id, "committed_at": self.committed_at.isoformat()}


@dataclass(frozen=True, slots=True)
class Retained:
    """A retained commit and its obstacle to a rewind.

    Attributes:
        is_of_launch: whether a launch continued from it, as from the last one before an edit.
        obstacle: None if there is none.
    """

    place: Place
    is_of_launch: bool
    obstacle: str | None


def missing_records(wanted: Positions, kept: Mapping[str, Mapping[str, tuple[int, int]]]) -> str | None:
    """Return which records would have to be read again and are missing; None if all are there.

    Args:
        wanted: where reading would continue, by feed and partition.
        kept: for feeds in the log, the first offset and the one after the last, by partition. Other feeds are not checked.
    """
    for feed, partitions in sorted(wanted.items()):
        for partition, offset in sorted(partitions.items()):
            first, end = kept.get(feed, {}).get(partition, (offset, offset))
            if offset < first:
                return (
                    f"records of {visible_feed(feed)} from {offset} to {first} in partition {partition} were removed by retention"
                )
            if offset > end:
                return f"{visible_feed(feed)} ends with {end} in partition {partition}, before {offset}, where reading would continue"
    return None


def forked_since(batch_id: int, forks: Iterable[tuple[str, int | None]]) -> str | None:
    """Return the forks that continued from a later commit (name, batch); None if there are none."""
    names = [visible(name) for name, forked in forks if forked is not None and forked > batch_id]
    return (
        f"{', '.join(names)} continued from a later commit as a fork; DELETE it first, or rewind to a later commit"
        if names
        else None
    )


def delivered_since(next_sequence: int, delivered: int | None) -> str | None:
    """Return how many results after a commit were delivered; None if none were.

    Args:
        next_sequence: number after the last row of the result at the commit.
        delivered: number after the last row that may have been delivered; None if there is none.
    """
    if delivered is None or delivered <= next_sequence:
        return None
    return (
        f"{delivered - next_sequence:,} results after it were delivered (into.connector), and cannot be undone; "
        "rewind with a definition whose `into.connector` is null, or names another target"
    )


def named(definition: Any, name: str) -> Any:
    """Return the definition of a body, which may leave out the query's name.

    Raises:
        Unprocessable: ``name_mismatch``: it has another name.
    """
    if not isinstance(definition, dict) or definition.get("name", name) == name:
        return {"name": name, **definition} if isinstance(definition, dict) else definition
    detail = f"the definition has the name '{definition['name']}', the path '{name}'; a query cannot be renamed"
    raise Unprocessable("name_mismatch", detail, [Fault(f"{DEFINITION}/name", "name_mismatch", detail)])


def place_in_body(pointer: str) -> str:
    return DEFINITION + pointer


def not_retained(name: str, batch_id: int, retained: Sequence[int]) -> Conflict:
    retained_ones = f"; the newest retained ones: {', '.join(map(str, retained[:5]))}" if retained else "; none is retained"
    detail = (
        f"batch {batch_id} of query '{name}' is not retained{retained_ones}. GET /v1/queries/{name}/restore-points lists them"
    )
    return Conflict("commit_not_retained", detail, [Fault("/batch_id", "commit_not_retained", detail)])


def not_possible(detail: str) -> Conflict:
    return Conflict("rewind_not_possible", detail, [Fault("/batch_id", "rewind_not_possible", detail)])


def not_at_rest(name: str, state: str) -> Conflict:
    return Conflict(
        "query_not_at_rest",
        f"query '{name}' is {state}, and only a stopped, paused or failed query can be rewound; "
        f'PUT /v1/queries/{name}/desired-state {{"state": "paused"}} and wait for it (GET …/status?wait_for=paused)',
    )


def too_large(size: int, most: int) -> Conflict:
    detail = (
        f"the change log of the result has {size:,} bytes, and a rewind reads at most {most:,} of it to restore the rows "
        "(SLACKWATER_LIMITS__REWIND_BYTES); raise the limit"
    )
    return Conflict("rewind_too_large", detail)


def refusal(edit: Edit, name: str) -> Conflict:
    needing = [change for change in edit.changes if change.kind is EditKind.NEEDS_NEW_STATE]
    return Conflict(
        "state_incompatible",
        f"the state of query '{name}' does not fit this definition at any commit. Rewind with changes that an edit in place allows; for more, "
        f"PUT /v1/queries/{name} with ?state=discard starts from scratch",
        [Fault(DEFINITION + change.pointer, change.kind.value, change.reason) for change in needing],
    )

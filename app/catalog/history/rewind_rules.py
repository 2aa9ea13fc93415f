"""Going back to an earlier commit of a query: which of them it is, and what keeps one from it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from app.access.rules import visible, visible_feed
from app.catalog.stored.edit_rules import Edit, EditKind
from app.errors.app_errors import Conflict, Fault, Unprocessable

DEFINITION: Final = "/definition"
"""Where in the body of a request the edited definition stands."""

AT_REST: Final = ("stopped", "paused", "failed")
"""States in which nothing of a query runs, and nothing is about to."""

OVERFLOW: Final = "late_records_overflow"

Positions = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Place:
    """A commit of a query.

    Attributes:
        position: feed → partition → next offset, of what its results include.
    """

    batch_id: int
    committed_at: datetime
    position: Positions
    stream_time_ms: int | None

    def to_json(self) -> dict[str, Any]:
        """Return the form in which events and the audit log have it."""
        return {"batch_id": self.batch_id, "committed_at": self.committed_at.isoformat()}


@dataclass(frozen=True, slots=True)
class Retained:
    """A retained commit, and what is in the way of going back to it.

    Attributes:
        is_of_launch: a launch went on from it: the last one before an edit is such a commit.
        obstacle: None: nothing is.
    """

    place: Place
    is_of_launch: bool
    obstacle: str | None


def missing_records(wanted: Positions, kept: Mapping[str, Mapping[str, tuple[int, int]]]) -> str | None:
    """Say which records would have to be read again and are not there; None: all are.

    Args:
        wanted: where reading goes on, by feed and partition.
        kept: of feeds in the log the first offset and the one behind the last, by partition. Others are not judged.
    """
    for feed, partitions in sorted(wanted.items()):
        for partition, offset in sorted(partitions.items()):
            first, end = kept.get(feed, {}).get(partition, (offset, offset))
            if offset < first:
                return (
                    f"records of {visible_feed(feed)} from {offset} to {first} in partition {partition} were removed by retention"
                )
            if offset > end:
                return (
                    f"{visible_feed(feed)} ends with {end} in partition {partition}, before {offset}, where reading would go on"
                )
    return None


def forked_since(batch_id: int, forks: Iterable[tuple[str, int | None]]) -> str | None:
    """Say which forks have gone on from a later commit (name, batch); None: none has."""
    names = [visible(name) for name, forked in forks if forked is not None and forked > batch_id]
    return (
        f"{', '.join(names)} went on from a later commit as a fork; DELETE it first, or rewind to a later commit"
        if names
        else None
    )


def delivered_since(next_sequence: int, delivered: int | None) -> str | None:
    """Say that results behind a commit were delivered elsewhere; None: none were.

    Args:
        next_sequence: number behind the last row of the result as of the commit.
        delivered: number behind the last row that may have been brought away; None: none are.
    """
    if delivered is None or delivered <= next_sequence:
        return None
    return (
        f"{delivered - next_sequence:,} results behind it were delivered (into.connector), and cannot be taken back; "
        "rewind with a definition whose `into.connector` is null, or names another target"
    )


def named(definition: Any, name: str) -> Any:
    """Return the definition of a body, which may leave the query's name out.

    Raises:
        Unprocessable: ``name_mismatch``: it is another's.
    """
    if not isinstance(definition, dict) or definition.get("name", name) == name:
        return {"name": name, **definition} if isinstance(definition, dict) else definition
    detail = f"the definition names '{definition['name']}', the path '{name}'; a query cannot be renamed"
    raise Unprocessable("name_mismatch", detail, [Fault(f"{DEFINITION}/name", "name_mismatch", detail)])


def place_in_body(pointer: str) -> str:
    """Return where in the body stands what a pointer into the definition leads to."""
    return DEFINITION + pointer


def not_retained(name: str, batch_id: int, retained: Sequence[int]) -> Conflict:
    """Return the error for a commit that one cannot go back to, or not any more."""
    some = f"; the newest that are: {', '.join(map(str, retained[:5]))}" if retained else "; none is"
    detail = f"batch {batch_id} of query '{name}' is not retained{some}. GET /v1/queries/{name}/restore-points lists them"
    return Conflict("commit_not_retained", detail, [Fault("/batch_id", "commit_not_retained", detail)])


def not_possible(detail: str) -> Conflict:
    """Return the error for a commit to which the query cannot go back as it is now."""
    return Conflict("rewind_not_possible", detail, [Fault("/batch_id", "rewind_not_possible", detail)])


def not_at_rest(name: str, state: str) -> Conflict:
    """Return the error for a query that runs or is about to."""
    return Conflict(
        "query_not_at_rest",
        f"query '{name}' is {state}, and only what is stopped, paused or failed can be rewound; "
        f'PUT /v1/queries/{name}/desired-state {{"state": "paused"}} and wait for it (GET …/status?wait_for=paused)',
    )


def too_large(size: int, most: int) -> Conflict:
    """Return the error for a table whose log is longer than what one request reads."""
    detail = (
        f"the change log of the result has {size:,} bytes, and a rewind reads at most {most:,} of it to put the rows back "
        "(SLACKWATER_LIMITS__REWIND_BYTES); raise the limit"
    )
    return Conflict("rewind_too_large", detail)


def refusal(edit: Edit, name: str) -> Conflict:
    """Return the error for a definition that the query's state does not fit."""
    needing = [change for change in edit.changes if change.kind is EditKind.NEEDS_NEW_STATE]
    return Conflict(
        "state_incompatible",
        f"what query '{name}' keeps does not fit this definition, at whatever commit. Rewind with what an edit in place may change; for more, "
        f"PUT /v1/queries/{name} with ?state=discard starts from scratch",
        [Fault(DEFINITION + change.pointer, change.kind.value, change.reason) for change in needing],
    )

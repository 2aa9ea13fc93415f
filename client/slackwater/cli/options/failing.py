"""Failures of commands: message, code, cure, and exit code. Every exit code is defined here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.console import Console
from rich.markup import escape

from slackwater.errors import (
    ChangesReset,
    ForeignAnswer,
    NotReached,
    PushFailed,
    QueryFailed,
    ServiceError,
    SlackwaterError,
    StatementState,
    Unauthorized,
    Unreachable,
)

OK: Final = 0
FAILED: Final = 1
"""The service refused the request, or the expected state was not reached."""
USAGE: Final = 2
"""The command line was wrong; no request was sent."""
DIFFERENT: Final = 3
"""``diff``: there are changes to make. ``apply``: some changes were not made."""
_EXPLAINED: Final = re.compile(r"/v1/errors/\w{1,100}")
UNREACHABLE: Final = 4
"""No service answers, or another program answers."""
INTERRUPTED: Final = 130

_STATES: Final = {"done": "done", "failed": "failed", "not_tried": "not tried"}
_STATE_WIDTH: Final = max(map(len, _STATES.values()))
_MOST_CHARACTERS: Final = 100
"""Limit of characters of a statement in one line."""


class CommandFailed(Exception):
    """A command failed.

    Attributes:
        code: stable code; empty: there is none.
    """

    def __init__(self, detail: str, cure: str = "", exit_code: int = FAILED, code: str = "") -> None:
        super().__init__(detail)
        self.detail, self.cure, self.exit_code, self.code = detail, cure, exit_code, code


class UsageError(CommandFailed):
    """The command line or a file is wrong; nothing was done."""

    def __init__(self, detail: str, cure: str = "", exit_code: int = USAGE) -> None:
        super().__init__(detail, cure, exit_code)


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure in the form for output.

    Attributes:
        code: stable code; empty: there is none.
        places: faults in the request: a pointer or an excerpt, and the detail.
        links: URLs at which the service explains the codes.
        statements: of a script that failed half-way: the state of each.
    """

    code: str
    detail: str
    cure: str
    exit_code: int
    places: tuple[tuple[str, str], ...] = ()
    request_id: str | None = None
    links: tuple[str, ...] = ()
    statements: tuple[StatementState, ...] = ()

    def json(self) -> dict[str, Any]:
        """Return the failure in the form of ``--json``."""
        faults = [{"at": at, "detail": detail} for at, detail in self.places]
        error: dict[str, Any] = {
            "code": self.code,
            "detail": self.detail,
            "cure": self.cure,
            "errors": faults,
            "request_id": self.request_id,
            "links": list(self.links),
        }
        if self.statements:
            error["statements"] = [asdict(each) for each in self.statements]
        return {"error": error}


def failure_of(error: SlackwaterError | CommandFailed, url: str) -> Failure:
    """Return the failure for an error."""
    match error:
        case CommandFailed(detail=detail, cure=cure, exit_code=exit_code, code=code):
            return Failure(code, detail, cure, exit_code)
        case Unreachable():
            asked = "what was asked for may have been done; look before you ask again. " if error.is_sent else ""
            cure = f"{asked}Is the service running? `slackwater context list` shows which one is asked, --url names another"
            return Failure("unreachable", f"{url} does not answer: {error}", cure, UNREACHABLE)
        case ForeignAnswer():
            cure = "is this the URL of a service? A proxy or a page to sign in may answer instead; `slackwater context list` shows it"
            return Failure("foreign_answer", f"{url} does not answer as Slackwater does: {error}", cure, UNREACHABLE)
        case Unauthorized():
            cure = "give a key: --key, SLACKWATER_API_KEY, or slackwater context add NAME --url URL --key KEY"
            return Failure(error.code, error.detail, cure, FAILED, request_id=error.request_id, links=_links(error, url))
        case ServiceError():
            return Failure(
                error.code,
                error.detail,
                error.cure,
                FAILED,
                tuple(_places(error)),
                error.request_id,
                _links(error, url),
                error.statements,
            )
        case QueryFailed() | PushFailed() | ChangesReset():
            return Failure(error.code, str(error.detail), "", FAILED)
        case NotReached():
            return Failure("not_reached", str(error), "wait longer with --timeout, or look: slackwater status", FAILED)
    return Failure("", str(error), "", FAILED)


def _links(error: ServiceError, url: str) -> tuple[str, ...]:
    """Return the URLs that explain the codes of an answer; none if the service does not name them."""
    faults = error.problem.get("errors")
    types = [each.get("type") for each in faults if isinstance(each, dict)] if isinstance(faults, list) else []
    paths = [path for path in [*types, error.problem.get("type")] if isinstance(path, str) and _EXPLAINED.fullmatch(path)]
    named = [path for path in dict.fromkeys(paths) if path.rpartition("/")[2] != "definition_invalid" or len(set(paths)) == 1]
    return tuple(url.rstrip("/") + path for path in named)


def _places(error: ServiceError) -> Iterator[tuple[str, str]]:
    """Yield the faults with their places. A detail equal to that of the whole error is left out."""
    for fault in error.errors:
        excerpt = fault.place["excerpt"] if fault.place is not None and "excerpt" in fault.place else None
        if excerpt is not None:
            yield str(excerpt), fault.detail
        elif fault.detail != error.detail:
            yield fault.pointer, fault.detail


def show(console: Console, failure: Failure, *, as_json: bool) -> None:
    """Print a failure."""
    if as_json:
        console.print(json.dumps(failure.json(), ensure_ascii=False), markup=False, highlight=False, soft_wrap=True)
        return
    code = f" [dim]({escape(failure.code)})[/]" if failure.code else ""
    is_shown_by_place = len(failure.places) > 0 and all("\n" in at for at, _ in failure.places)
    head = "the statement is refused" if is_shown_by_place else failure.detail
    console.print(f"[bold red]error[/]{code}: {escape(head)}", highlight=False, soft_wrap=True)
    for at, detail in failure.places:
        if "\n" in at:
            console.print(f"  {detail}", markup=False, highlight=False, soft_wrap=True)
            for line in at.splitlines():
                console.print(f"    {line}", markup=False, highlight=False, soft_wrap=True, style="yellow")
        else:
            console.print(f"  {at}: {detail}" if at else f"  {detail}", markup=False, highlight=False, soft_wrap=True)
    for each in failure.statements:
        words = _STATES.get(each.state, each.state)
        what = each.message or " ".join(each.statement.split())
        console.print(
            f"  {words.ljust(_STATE_WIDTH)}  line {each.line}: {what[:_MOST_CHARACTERS]}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    if failure.cure:
        console.print(f"  → {failure.cure}", markup=False, highlight=False, soft_wrap=True)
    for link in failure.links:
        console.print(f"  more: {link}", markup=False, highlight=False, soft_wrap=True)

"""Outcomes of statements as answers show them, and the progress of a script."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from app.access.rules import visible_position_text
from app.catalog.warned import shown_warnings
from app.http.answers.problems import StatementState
from app.sql.answers.models import ResultColumn, StatementResult
from app.sql.outcomes import Defined, Inserted, Listed, Outcome, Selected
from engine.sql.scripts import Parsed


def answer_of(outcome: Outcome) -> StatementResult:
    """Return a statement's part of an answer."""
    parsed = outcome.parsed
    about = {"statement": parsed.text, "line": parsed.place.line}
    match outcome:
        case Defined(done=done):
            return StatementResult(
                **about, kind="done", message=done.sentence, relation=done.relation, query=done.query, definition=done.definition,
                notes=list(done.notes), warnings=shown_warnings(done.warnings),
            )  # fmt: skip
        case Listed(listing=listing):
            columns = [ResultColumn(name=name, type=kind) for name, kind in listing.columns]
            rows = [list(row) for row in listing.rows]
            return StatementResult(**about, kind="rows", message=_counted(len(rows)), columns=columns, rows=rows)
        case Selected(rows=result):
            columns = [ResultColumn(name=name, type=str(kind)) for name, kind in result.columns.items()]
            shown = values_of(result.texts())
            position = None if result.position is None else json.loads(visible_position_text(result.position))
            return StatementResult(
                **about, kind="rows", message=_counted(len(shown)), columns=columns, rows=shown, position=position
            )  # fmt: skip
        case Inserted(appended=appended, relation=relation):
            refused = "" if not appended.rejected_count else f", {appended.rejected_count} refused: {appended.rejected[0].detail}"
            message = f"{appended.count} {'record' if appended.count == 1 else 'records'} appended{refused}"
            return StatementResult(**about, kind="inserted", message=message, relation=relation.definition_name)


def values_of(objects: Any) -> list[list[Any]]:
    """Return the values of JSON objects in the order of their members."""
    return [list(json.loads(text).values()) for text in objects]


def _counted(number: int) -> str:
    return "1 row" if number == 1 else f"{number:,} rows"


@dataclass(slots=True)
class Progress:
    """A script during its execution.

    Attributes:
        outcomes: of the first statements, in order; grows.
    """

    statements: Sequence[Parsed]
    outcomes: list[Outcome] = field(default_factory=list)

    def states(self) -> list[StatementState]:
        """Return the state of each statement, if the one after the last outcome failed."""
        failed = len(self.outcomes)
        return [
            StatementState(
                statement=parsed.text,
                line=parsed.place.line,
                state="done" if number < failed else "failed" if number == failed else "not_tried",
                message=answer_of(self.outcomes[number]).message if number < failed else None,
            )
            for number, parsed in enumerate(self.statements)
        ]

    def sentence(self) -> str:
        """Return the same as a sentence."""
        done = len(self.outcomes)
        left = len(self.statements) - done - 1
        return f"statement {done + 1} of {len(self.statements)} failed: {done} carried out before it, {left} behind it not tried"

"""Progress of a script: executed statements, the failed one, and those not tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from app.http.answers.problems import StatementState
from app.sql.answers.answers import answer_of
from app.sql.outcomes import Outcome
from engine.sql.scripts import Parsed


@dataclass(slots=True)
class Progress:
    """A script during its execution.

    Attributes:
        statements: all of them.
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

"""Why a statement cannot be carried out, and where in its text."""

from __future__ import annotations

from engine.sql.tree import Node, Span


class StatementFault(Exception):
    """A statement that is not carried out.

    Attributes:
        code: stable snake_case code.
        sentence: what is wrong and what to do about it.
        span: of what is wrong: its first character in the text and the one behind its last; None where no one place is.
    """

    def __init__(self, code: str, sentence: str, at: Node | Span | None = None) -> None:
        super().__init__(sentence)
        self.code, self.sentence = code, sentence
        self.span = at.span if isinstance(at, Node) else at


class StatementRefused(StatementFault):
    """The statement is wrong: by the rules of the language, or against the catalog."""


class StatementUnsupported(StatementFault):
    """The statement is right in ksqlDB's language, and cannot be had here."""

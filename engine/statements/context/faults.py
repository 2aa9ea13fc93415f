"""Why a statement cannot be carried out, and where in its text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from engine.sql.tree import Node, Span

MAX_FAULTS: Final = 20
"""That are reported of one statement."""


class StatementFault(Exception):
    """A statement that is not carried out.

    Attributes:
        code: stable snake_case code.
        sentence: what is wrong and what to do about it.
        span: of what is wrong: its first character in the text and the one behind its last; None where no one place is.
        others: further faults of the same statement, in the order of the text.
    """

    others: tuple[StatementFault, ...] = ()

    def __init__(self, code: str, sentence: str, at: Node | Span | None = None) -> None:
        super().__init__(sentence)
        self.code, self.sentence = code, sentence
        self.span = at.span if isinstance(at, Node) else at

    @property
    def all(self) -> tuple[StatementFault, ...]:
        """This fault and the others of the statement."""
        return (self, *self.others)


def together(faults: Sequence[StatementFault]) -> StatementFault:
    """Return the first of the faults of one statement in the order of the text, with the others; each sentence once.

    Faults of one place stay in the order in which they are given.

    Args:
        faults: one at least.
    """
    each_once: dict[tuple[str, str], StatementFault] = {}
    for fault in faults:
        each_once.setdefault((fault.code, fault.sentence), fault)
    first, *others = sorted(each_once.values(), key=lambda fault: fault.span or (0, 0))[:MAX_FAULTS]
    first.others = tuple(others)
    return first


def raise_all(faults: Sequence[StatementFault]) -> None:
    """Raise the faults of one statement together; without faults do nothing.

    Raises:
        StatementFault: see ``together``.
    """
    if faults:
        raise together(faults)


class Faults:
    """The faults of one statement, gathered part by part: a part is judged although another one is wrong.

    Attributes:
        listed: those of the parts so far.
    """

    def __init__(self) -> None:
        self.listed: list[StatementFault] = []

    @contextmanager
    def part(self) -> Iterator[None]:
        """Gather the faults of the block instead of raising them. What the block should assign stays as it was before."""
        try:
            yield
        except StatementFault as fault:
            self.add(fault)

    def add(self, fault: StatementFault) -> None:
        self.listed.extend(fault.all)

    def is_within(self, node: Node) -> bool:
        """Whether one of them is about a node, or about a part of it."""
        if node.span is None:
            return False
        start, end = node.span
        return any(fault.span is not None and start <= fault.span[0] and fault.span[1] <= end for fault in self.listed)

    @property
    def is_full(self) -> bool:
        """Whether there are as many as are reported."""
        return len(self.listed) >= MAX_FAULTS

    def raise_all(self) -> None:
        """Raise them together; without faults do nothing.

        Raises:
            StatementFault: see ``together``.
        """
        raise_all(self.listed)


class StatementRefused(StatementFault):
    """The statement is wrong: by the rules of the language, or against the catalog."""


class StatementUnsupported(StatementFault):
    """The statement is right in ksqlDB's language, and cannot be had here."""

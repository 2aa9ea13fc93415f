"""One entry of the list of functions (``engine.expressions.library.function_list``), which says everything of its function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.expressions.documented import Argument, Example, arguments_of
from engine.expressions.values.compiling import Compiling
from engine.expressions.values.evaluation_errors import GapsOfCall
from engine.expressions.values.operands import Operand
from engine.sql.tree import Node

Arguments = Sequence[Operand]


@dataclass(frozen=True)
class OverNodes:
    """Compiles a call some of whose arguments are no values: lambdas."""

    compile: Callable[[Compiling, Sequence[Node]], Operand]


@dataclass(frozen=True)
class Function:
    """One entry of the allow-list.

    Attributes:
        name: as it is called.
        takes: its arguments in order, as ``documented.arguments_of`` reads them.
        result: type of its result, in words.
        doc: what it gives.
        examples: calls of literals, each with its result.
        build: compiles a call with as many arguments as it takes.
        gaps: notes where it has no result (``engine.expressions.values.evaluation_errors``); None: it has one wherever it has arguments.
        is_lazy: an argument counts only where all before it are NULL.
        elsewhere: what other systems call it.
        ksqldb: its names in definitions of the dialect ksqldb, in capital letters: a call of one of them there means this entry.
            Where ksqlDB's function differs from the one called so here, another entry (``ksql_round``) has the name.
    """

    name: str
    takes: str
    result: str
    doc: str
    examples: Sequence[Example]
    build: Callable[[Arguments], Operand] | OverNodes
    gaps: GapsOfCall | None = None
    is_lazy: bool = False
    elsewhere: Sequence[str] = ()
    ksqldb: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return arguments_of(self.takes)

    @property
    def fewest(self) -> int:
        """How many arguments it takes at least."""
        return sum(not argument.is_optional for argument in self.arguments)

    @property
    def most(self) -> int | None:
        """How many arguments it takes at most; None: any number."""
        return None if any(argument.is_repeated for argument in self.arguments) else len(self.arguments)

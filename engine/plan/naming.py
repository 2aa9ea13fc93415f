"""Under which names the status shows what operators report: their own, with the stage where several stages have one of that name.

The steps of a foreign-key join share the joined table's name, those of an aggregation over a table are both called ``aggregate``.
"""

from __future__ import annotations

from collections import Counter

from engine.plan.model import Plan


class ReportedNames:
    """The names of one plan's operators."""

    def __init__(self, plan: Plan) -> None:
        names = ((stage.index, operator.name) for stage in plan.stages for operator in stage.operators)
        counts = Counter(name for _, name in {pair for pair in names if pair[1] is not None})
        self._shared = {name for name, count in counts.items() if count > 1}

    def of(self, stage_index: int, reported: str) -> str:
        """Return the name to show: ``customers@1`` or ``customers@1.table`` where two stages have a ``customers``.

        Args:
            stage_index: the stage that reports.
            reported: an operator's name, or one of its clocks': the name, a dot and more.
        """
        name, dot, rest = reported.partition(".")
        return f"{name}@{stage_index}{dot}{rest}" if name in self._shared else reported

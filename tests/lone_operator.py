"""An operator that a test runs alone, with the times that its own records make."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import polars as pl

from engine.frames.frames import POS, RANK
from engine.frames.places import place_order
from engine.operators.operators import Operator, OperatorOutput
from tests.batch_times import RunningTimes, unranked


@dataclass
class LoneOperator:
    """Gives an operator batch after batch."""

    operator: Any
    times: RunningTimes = field(default_factory=RunningTimes)

    def process(self, frame: pl.DataFrame, silence_ms: int = 0, first: int = 0, *, is_release: bool = False) -> OperatorOutput:
        """Handle a batch; rows that come without ranks have none. The places of the silence begin with ``first``."""
        frame = frame if RANK in frame.columns else unranked(frame)
        behind = first + silence_ms
        behind = max([behind, *(position + 1 for position in frame.get_column(POS).to_list())])
        moment = self.times.at([frame], position=behind, silence_ms=silence_ms, first=first, is_release=is_release)
        output: OperatorOutput = self.operator.process(frame, {}, moment)
        assert list(place_order(output.frame)) == list(range(output.frame.height)), "rows stand in the order of their places"
        return output

    def restarted(self, operator: Operator) -> LoneOperator:
        """Go on with another operator at the same time."""
        return LoneOperator(operator, self.times)

"""Makes rows of arrays' elements, whole columns at a time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from engine.errors import InvariantBroken
from engine.expressions.expressions import compile_scalar
from engine.expressions.types.types import Schema
from engine.frames.clocks import I64
from engine.frames.evaluation_errors import GapCounter
from engine.frames.frames import OP, SERVICE_COLUMNS, Counters, add_counter, empty_frame
from engine.frames.places import apart
from engine.operators.operators import BatchTime, Operator, OperatorOutput
from engine.plan.operators.explosion import Explosion

_STEP = "select"


class Exploder(Operator):
    """Gives the rows of each record one after the other, in the order of the elements, each at a place of its own (T1b).

    Counted under ``select`` are records without a value (``null_value``), which give no row, and what could not be computed.
    """

    def __init__(self, spec: Explosion, schema: Schema) -> None:
        scalars = [compile_scalar(text, schema) for _, text in spec.arrays]
        self._arrays = [scalar.expr.alias(name) for scalar, (name, _) in zip(scalars, spec.arrays, strict=True)]
        elements = []
        for scalar, (name, _) in zip(scalars, spec.arrays, strict=True):
            if scalar.type.element is None:
                raise InvariantBroken(f"{name} is of type {scalar.type}")
            elements.append((name, scalar.type.element))
        self.schema = Schema((*schema.select(spec.carried).items(), *elements))
        self._carried = [*SERVICE_COLUMNS, *spec.carried]
        self._nothing = empty_frame(self.schema)
        self._gaps = GapCounter(_STEP, scalars)

    def process(self, frame: pl.DataFrame, inputs: Mapping[int, pl.DataFrame], moment: BatchTime) -> OperatorOutput:  # noqa: ARG002
        if frame.is_empty():
            return OperatorOutput(self._nothing)
        counters: Counters = {}
        add_counter(counters, _STEP, "null_value", int((frame[OP] != 0).sum()))
        frame = frame.filter(pl.col(OP) == 0)
        arrays = frame.select(self._arrays).get_columns()
        self._gaps.count(frame, counters, arrays)
        lengths = [array.list.len().fill_null(0).cast(pl.Int64).to_numpy() for array in arrays]
        most: I64 = np.maximum.reduce(lengths)
        rows = np.repeat(np.arange(frame.height), most)
        places = np.arange(len(rows)) - np.repeat(np.cumsum(most) - most, most)
        elements = [_elements(array, own, rows, places) for array, own in zip(arrays, lengths, strict=True)]
        made = frame.select(self._carried)[rows].with_columns(elements)
        return OperatorOutput(apart(made, places), counters=counters)


def _elements(array: pl.Series, lengths: I64, rows: I64, places: I64) -> pl.Series:
    """Return the element of each row, null behind an array's end."""
    elements = array.filter(pl.Series(lengths > 0)).explode()
    is_there = places < lengths[rows]
    found = pl.Series(np.where(is_there, (np.cumsum(lengths) - lengths)[rows] + places, 0)).set(pl.Series(~is_there), None)
    if elements.is_empty():
        return elements.clear().extend_constant(None, len(rows)).alias(array.name)
    return elements.to_frame().select(pl.all().gather(found)).to_series().alias(array.name)

"""Which inputs of a plan share a time (T1), and what of it operators hand on (T1c). Pure."""

from __future__ import annotations

from collections.abc import Mapping

from engine.frames.clocks import Clock
from engine.plan.model import Plan, Stage


def time_sources(plan: Plan) -> dict[int, int]:
    """Return for each ``Input.index`` the index of the input by whose name its time goes.

    All streams of a query have the time of its first input; each table has its own.
    """
    first = first_input(plan)
    streams = {first, *(index for stage in plan.stages for each in stage.operators if (index := each.stream_beside) is not None)}
    return {item.index: first if item.read_as in streams else item.read_as for item in plan.inputs}


def triggering_inputs(plan: Plan) -> frozenset[int]:
    """Return the inputs whose records make results: all but the tables that a stream looks up (J1)."""
    looked_up = {each.looked_up_table for stage in plan.stages for each in stage.operators}
    return frozenset(item.index for item in plan.inputs if item.read_as not in looked_up)


def clocks_before(stage: Stage, plan: Plan, sources: Mapping[int, Clock]) -> list[Clock]:
    """Return the clock of the running relation before each operator of a stage, and behind the last one.

    Args:
        stage: which.
        plan: its plan.
        sources: the clocks of the inputs, by the index that ``time_sources`` gives.
    """
    clock = sources[first_input(plan)]
    for before in plan.stages[: stage.index]:
        clock = _through(before, clock, sources)[-1]
    return _through(stage, clock, sources)


def _through(stage: Stage, clock: Clock, sources: Mapping[int, Clock]) -> list[Clock]:
    clocks = [clock]
    for operator in stage.operators:
        if operator.table_beside is not None:
            clock = clock.joined(sources[operator.table_beside])
        clock = clock.behind(*operator.waits)
        clocks.append(clock)
    return clocks


def first_input(plan: Plan) -> int:
    """Return the index of the input that a query begins with."""
    first = plan.stages[0].running
    assert first is not None  # noqa: S101 - the first stage reads the query's first input
    return first

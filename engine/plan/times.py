"""Which inputs of a plan share a time (T1), and what of it operators hand on (T1c). Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.frames.clocks import Clock
from engine.plan.model import Plan, Stage
from engine.plan.operators.operator import Operator


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


HandOn = Callable[[str, Operator, Clock], Clock]
"""An operator, what names it in the query, the time before it → the time behind it."""


def clocks_between(plan: Plan, sources: Mapping[int, Clock], hand_on: HandOn | None = None) -> list[list[Clock]]:
    """Return for each stage the clock of the running relation before each of its operators, and behind the last one.

    Args:
        plan: the plan.
        sources: the clocks of the inputs, by the index that ``time_sources`` gives.
        hand_on: what operators hand on (T1c); None: as far as their waits say.
    """
    hand_on = hand_on or (lambda _, operator, clock: clock.behind(*operator.waits))
    clock, found = sources[first_input(plan)], []
    for stage in plan.stages:
        clocks = [clock]
        for operator in stage.operators:
            if operator.table_beside is not None:
                clock = clock.joined(sources[operator.table_beside])
            clock = hand_on(name_of(stage, operator.name), operator, clock)
            clocks.append(clock)
        found.append(clocks)
    return found


def name_of(stage: Stage, operator_name: str | None) -> str:
    """Return what names an operator in its query: two stages may have one of the same name."""
    return f"{stage.index}:{operator_name}"


def first_input(plan: Plan) -> int:
    """Return the index of the input that a query begins with."""
    first = plan.stages[0].running
    assert first is not None  # noqa: S101 - the first stage reads the query's first input
    return first

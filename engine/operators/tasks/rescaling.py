"""The states of a stage's tasks, made into those of another number of tasks.

Whoever keeps them switches from the ones to the others at once; nothing of the old states is changed or removed here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.operators.operator_kinds import KINDS
from engine.operators.rescale.segments import LATEST, moved
from engine.operators.rescale.shares import Shares, Source
from engine.operators.rows.conflicts import inputs_by_conflict
from engine.operators.tasks.task import STATE_FORMAT, check_format
from engine.plan.model import Input, Plan, Stage, followed_keys, input_key
from engine.state.segments.ports import SegmentStore


def repartitioned(
    stage: Stage, plan: Plan, before: Sequence[tuple[Mapping[str, Any] | None, SegmentStore]], stores: Sequence[SegmentStore]
) -> list[dict[str, Any] | None]:
    """Give the tasks of a stage's state to another number of tasks.

    Args:
        stage: the stage.
        plan: its plan, for either number of tasks.
        before: what each task's ``snapshot`` returned, None for one that never ran, and where its segments are; by ordinal.
        stores: where each new task keeps its segments, by ordinal.

    Returns:
        What ``build_task`` makes each new task of; None for all where no task ever ran.

    Raises:
        StateCorrupt: a state has another format, or a segment cannot be read.
        InvariantBroken: rows are not in the task that their key says.
    """
    for state, _ in before:
        check_format(state)
    sources = [Source(ordinal, state, store) for ordinal, (state, store) in enumerate(before) if state is not None]
    if not sources:
        return [None for _ in stores]
    inputs = {item.index: input_key(item.index, plan) for item in plan.inputs if item.stage == stage.index}
    shares = Shares(len(before), (), inputs, stores, plan.output.has_open)
    operators: dict[str, list[dict[str, Any]]] = {}
    for spec, key in zip(stage.operators, followed_keys(stage, plan), strict=True):
        move = KINDS[type(spec)].move
        if move is not None and spec.name is not None:
            parts = [source.part("operators").part(spec.name) for source in sources]
            operators[spec.name] = move(spec, parts, replace(shares, key=key))
    latest = {
        item.alias: shares.states(
            {"keys": moved(LATEST, [_times(source, item) for source in sources], shares, inputs[item.index])}
        )
        for item in inputs_by_conflict(stage, plan)
    }
    same = _of_task(sources)
    return [
        {**same, "operators": _of_place(operators, place), "conflicts": _of_place(latest, place)} for place in range(len(stores))
    ]


def _of_place(states: Mapping[str, Sequence[dict[str, Any]]], place: int) -> dict[str, dict[str, Any]]:
    return {name: each[place] for name, each in states.items()}


def _times(source: Source, item: Input) -> Source:
    """Return what a task kept of the times of a table's keys (``engine.operators.rows.conflicts``)."""
    return source.part("conflicts").part(item.alias).part("keys")


def _of_task(sources: Sequence[Source]) -> dict[str, Any]:
    """Return what a task keeps beside its operators: how many rows it emitted."""
    return {"format": STATE_FORMAT, "emitted": max(source.state["emitted"] for source in sources)}

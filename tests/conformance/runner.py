"""Running scenarios and saying readably how one failed."""

from __future__ import annotations

import difflib
import json
from typing import Any

from engine.errors import DefinitionInvalid
from tests.conformance.corpus import Scenario
from tests.conformance.machines import Machine, MergeMachine, QueryMachine
from tests.conformance.queries import case_of
from tests.conformance.slicing import Slicing
from tests.conformance.stores import StoreMachine


def run(scenario: Scenario, slicing: Slicing) -> str | None:
    """Run one scenario; returns None, or how it failed."""
    if scenario.is_rejected:
        return _run_rejected(scenario)
    actual = _outputs(scenario, slicing)
    if slicing.mode == "record":
        expected = scenario.expected
    else:
        expected, actual = _flat(scenario, scenario.expected), _flat(scenario, actual)
    return None if actual == expected else _difference(expected, actual)


def _run_rejected(scenario: Scenario) -> str | None:
    try:
        case_of(scenario.op).workbench()
    except DefinitionInvalid:
        return None
    return "the definition was accepted, but must be refused"


def _outputs(scenario: Scenario, slicing: Slicing) -> list[Any]:
    """Outputs of each batch; of a store, the result of each step."""
    kinds = {"versioned_store": StoreMachine, "merge_order": MergeMachine}
    machine: Machine = kinds.get(scenario.op["kind"], QueryMachine)(scenario.op, scenario.steps)
    is_store = isinstance(machine, StoreMachine)
    outputs: list[Any] = []
    place = 0
    for cut in slicing.cuts(len(scenario.steps), scenario.id):
        for start, end in _without_restarts(scenario.steps, place, cut.end):
            if start < end:
                found = machine.run(start, end)
                outputs += found or [] if is_store else [found]
            else:
                machine.restart()
                outputs.append(None if is_store else [])
        if cut.restarts:
            machine.restart()
        place = cut.end
    return outputs


def _without_restarts(steps: list[dict[str, Any]], start: int, end: int) -> list[tuple[int, int]]:
    """Cut ``start..end-1`` at restarts; an empty range stands for each."""
    ranges: list[tuple[int, int]] = []
    for place in range(start, end):
        if steps[place].get("op") == "restart":
            ranges += [(start, place), (place, place)] if start < place else [(place, place)]
            start = place + 1
    return [*ranges, (start, end)] if start < end else ranges


def _flat(scenario: Scenario, outputs: list[Any]) -> list[Any]:
    """What is compared under slicing: of a store the results, else the outputs one after the other."""
    if scenario.op["kind"] == "versioned_store":
        return outputs
    return [output for step in outputs for output in step or ()]


def _difference(expected: list[Any], actual: list[Any]) -> str:
    wanted, got = ([json.dumps(each) for each in outputs] for outputs in (expected, actual))
    return "\n".join(difflib.unified_diff(wanted, got, "expected", "actual", lineterm="", n=2))

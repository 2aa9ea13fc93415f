"""Running scenarios and saying readably how one failed."""

from __future__ import annotations

import difflib
import json
from typing import Any

from engine.errors import DefinitionInvalid
from tests.conformance.corpus import Scenario
from tests.conformance.machines import Machine, MergeMachine, TaskMachine
from tests.conformance.plans import validate
from tests.conformance.slicing import Slicing
from tests.conformance.stores import StoreMachine


def run(scenario: Scenario, slicing: Slicing) -> str | None:
    """Run one scenario; returns None, or how it failed."""
    if not scenario.is_supported:
        return f"{scenario.kind} is not part of this release"
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
        validate(scenario.op)
    except DefinitionInvalid:
        return None
    return "the definition was accepted, but must be refused"


def _outputs(scenario: Scenario, slicing: Slicing) -> list[Any]:
    """Outputs of each batch; of a store, the result of each step."""
    machine = _machine(scenario)
    outputs: list[Any] = []
    place = 0
    for length in slicing.lengths(len(scenario.steps), scenario.id):
        for batch in _without_restarts(scenario.steps[place : place + length]):
            if batch:
                found = machine.run(batch)
                outputs += found if isinstance(machine, StoreMachine) else [found]
            else:
                machine.restart()
                outputs.append(None if isinstance(machine, StoreMachine) else [])
        place += length
    return outputs


def _machine(scenario: Scenario) -> Machine:
    machines = {"versioned_store": StoreMachine, "merge_order": MergeMachine}
    return machines.get(scenario.op["kind"], TaskMachine)(scenario.op)


def _without_restarts(steps: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Cut at restarts; an empty batch stands for each."""
    batches: list[list[dict[str, Any]]] = []
    current: list[dict[str, Any]] = []
    for step in steps:
        if step.get("op") == "restart":
            batches += [current, []] if current else [[]]
            current = []
        else:
            current.append(step)
    return [*batches, current] if current else batches


def _flat(scenario: Scenario, outputs: list[Any]) -> list[Any]:
    """What is compared under slicing: of a store the results, else the outputs one after the other."""
    if scenario.op["kind"] == "versioned_store":
        return outputs
    return [output for step in outputs for output in step]


def _difference(expected: list[Any], actual: list[Any]) -> str:
    wanted, got = ([json.dumps(each) for each in outputs] for outputs in (expected, actual))
    return "\n".join(difflib.unified_diff(wanted, got, "expected", "actual", lineterm="", n=2))

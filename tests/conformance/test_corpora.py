"""The corpora in the repository, in every slicing. ``python -m tests.conformance`` is the same by hand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.__main__ import main
from tests.conformance.corpus import CORPORA, Scenario, files, load
from tests.conformance.runner import run
from tests.conformance.slicing import Slicing
from tests.property.suppress_model import Batch, Change, Limits, Suppression

FILES = files(CORPORA)

RECORD_BY_RECORD = 6
"""Scenarios of a fuzz file that run record by record here: a batch of one costs as much as one of thousands. All are `slow`."""

SLICINGS = ["whole", pytest.param("random:1", marks=pytest.mark.slow)]
"""Cut at random they cost as much again; the property tests cut their own."""


def name(path: Path) -> str:
    return path.name.partition(".")[0]


def failures(scenarios: list[Scenario], slicing: str) -> list[str]:
    found = ((scenario.id, run(scenario, Slicing.parse(slicing))) for scenario in scenarios)
    return [f"{scenario}: {failure}" for scenario, failure in found if failure is not None]


@pytest.mark.parametrize("slicing", SLICINGS)
@pytest.mark.parametrize("path", FILES, ids=name)
def test_every_scenario_gives_what_strict_semantics_require(path: Path, slicing: str) -> None:
    assert failures(load(path), slicing) == []


def suppressed(scenario: Scenario) -> list[Any]:
    """What S1, S4 and S5 give, step by step."""
    limits = Limits(scenario.op["max_records"], None, is_stop=scenario.op["when_full"] == "shut_down")
    model = Suppression(scenario.op["limit_ms"], limits, is_wall_clock=False)
    told: list[Any] = []
    for place, step in enumerate(scenario.steps):
        before = len(model.outputs)
        if model.failed_at is None and step.get("op") != "restart":
            changes, records = (Change(place, step["ts"], step["key"], step["value"]),), ((place, step["ts"]),)
            model.take(Batch(0, place, 0, records if step["key"] is not None else (), changes, place + 1))
            rows = [{"key": key, "value": value, "ts": ts} for _, (ts, _, key, value) in model.outputs[before:]]
            told.append(rows if model.failed_at is None else [*rows, {"error": "StreamsException"}])
        else:
            told.append(None if model.failed_at is not None else [])
    return told


def test_the_naive_model_of_bounded_buffers_gives_what_the_corpus_says() -> None:
    for scenario in load(CORPORA / "fuzz-suppress_time_limit-bounded.json.gz"):
        assert suppressed(scenario) == scenario.expected, scenario.id


@pytest.mark.parametrize("path", FILES, ids=name)
def test_scenarios_record_by_record_give_each_step_its_outputs(path: Path) -> None:
    scenarios = load(path)
    assert failures(scenarios if path.name.startswith("vectors") else scenarios[:RECORD_BY_RECORD], "record") == []


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=name)
def test_all_scenarios_record_by_record_give_each_step_its_outputs(path: Path) -> None:
    assert failures(load(path), "record") == []


def test_the_repository_holds_the_corpora_of_all_kinds() -> None:
    kinds = Counter(scenario.op["kind"] for path in files(CORPORA) for scenario in load(path))
    assert kinds == {
        "foreign_key_join": 93,
        "merge_order": 45,
        "stream_table_join": 196,
        "suppress_time_limit": 130,
        "table_aggregate": 125,
        "table_filter": 44,
        "table_table_join": 139,
        "versioned_store": 69,
        "window_aggregate": 530,
    }


def test_a_wrong_result_is_shown_as_a_difference(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text(
        '[{"id":"x","title":"a wrong order","op":{"kind":"merge_order","inputs":["A","B"]},"steps":[{"fetch":'
        '[{"in":"A","value":"a","ts":2},{"in":"B","value":"b","ts":1}]}],"expected":[[{"key":"A","value":"a","ts":2},'
        '{"key":"B","value":"b","ts":1}]],"divergence":null}]'
    )
    assert main([str(wrong), "--slicing", "whole"]) == 1
    output = capsys.readouterr().out
    assert '-{"key": "B", "value": "b", "ts": 1}' in output
    assert output.splitlines()[-1] == "0 passed, 1 failed"

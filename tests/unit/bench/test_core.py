"""The benchmark of the engine alone runs, and counts what came out."""

from __future__ import annotations

import pytest
from _pytest.mark import ParameterSet

from tests.bench.core import run_job
from tests.bench.core_expressions import expression_jobs
from tests.bench.core_jobs import CoreJob, jobs
from tests.bench.core_scaling import INDEX_KEYS, WAITING_ROWS, measure_scaling


def of_all_jobs() -> list[ParameterSet]:
    """Return every job; all but the first of each list are slow."""
    return [
        pytest.param(job, id=job.name, marks=[pytest.mark.slow] if place else [])
        for listed in (jobs(), expression_jobs())
        for place, job in enumerate(listed)
    ]


@pytest.mark.parametrize("job", of_all_jobs())
def test_every_job_handles_all_records(job: CoreJob) -> None:
    run = run_job(job, "tiny")
    assert run.records in (46_000, 49_000)
    assert run.rows > 0
    assert 0 <= run.exact_path <= run.records


@pytest.mark.slow
def test_joining_in_any_batches_gives_as_many_rows() -> None:
    grace = [run_job(job, "tiny") for job in jobs() if job.name.startswith("grace join")]
    assert {run.rows for run in grace} == {grace[0].rows}


def test_growth_is_told_for_every_size() -> None:
    growths = measure_scaling("tiny", 1)
    # Plain numpy as the floor, puts, lookups of keys at random, lookups of always as many keys.
    assert len(growths) == 4 * len(INDEX_KEYS["tiny"]) + len(WAITING_ROWS["tiny"])
    assert growths[0].ratio == 1.0

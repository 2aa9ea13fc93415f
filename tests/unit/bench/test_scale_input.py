"""The closed form of the large state agrees with looking every version up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.bench.scale_input import Keys, Probes, Table

TABLE = Table(keys=40, versions=190)


@pytest.mark.parametrize("keys", ["uniform", "zipf"])
def test_the_closed_form_gives_the_newest_version_that_is_not_after_the_probe(keys: Keys) -> None:
    probes = Probes(TABLE, keys, 1_000, 3_000).rows(0, 3_000)
    table = TABLE.rows(0, TABLE.versions).sort("ts")
    joined = probes.join_asof(table, on="ts", by="item", check_sortedness=False)
    true = TABLE.true_version(probes["item"].to_numpy(), probes["ts"].to_numpy())
    assert true.tolist() == joined["version"].fill_null(-1).to_list()
    assert -1 in true
    assert 3 in true


def test_skewed_keys_are_asked_for_as_often_as_one_over_their_rank() -> None:
    many = replace(TABLE, keys=100_000, versions=100_000)
    counts = Probes(many, "zipf", 0, 200_000).rows(0, 200_000)["item"].value_counts(sort=True)["count"]
    assert counts[0] / counts[9] == pytest.approx(np.log(2) / np.log(11 / 10), rel=0.15)


def test_a_wrong_a_missing_a_repeated_and_an_early_answer_each_count() -> None:
    probes = Probes(TABLE, "uniform", 50, 400)
    rows = probes.rows(0, 400)
    versions = TABLE.true_version(rows["item"].to_numpy(), rows["ts"].to_numpy())
    numbers = rows["n"].to_numpy()
    assert probes.wrong(numbers, versions) == 0
    assert probes.wrong(numbers[1:], versions[1:]) == 1
    assert probes.wrong(np.append(numbers, numbers[:1]), np.append(versions, versions[:1])) == 1
    assert probes.wrong(numbers, np.append(versions[:-1], versions[-1] + 1)) == 1
    times = rows["ts"].to_numpy()
    is_due = times <= times.max() - 900_000  # one time for all keys (T1)
    assert probes.wrong(numbers[is_due], versions[is_due], 900_000) == 0
    assert probes.wrong(numbers, versions, 900_000) == int((~is_due).sum())

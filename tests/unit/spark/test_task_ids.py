"""Task ids: they spread over partitions as Spark hashes, and never change."""

from __future__ import annotations

from collections import Counter

import pytest

from engine.spark.task_ids import murmur3_of_int, spark_partition, task_ids


@pytest.mark.parametrize(
    ("value", "expected"), [(0, 933211791), (1, -559580957), (2, 1765031574), (-1, -1604776387), (2147483647, 133916647)]
)
def test_the_hash_is_that_of_spark(value: int, expected: int) -> None:
    assert murmur3_of_int(value, 42) == expected


@pytest.mark.parametrize("partitions", [1, 2, 3, 8, 200])
@pytest.mark.parametrize("tasks", [1, 2, 4, 7, 64])
def test_every_partition_works_on_its_share_of_tasks(tasks: int, partitions: int) -> None:
    ids = task_ids(tasks, partitions)
    assert len(set(ids)) == tasks
    assert [spark_partition(task, partitions) for task in ids] == [ordinal % partitions for ordinal in range(tasks)]
    loads = Counter(spark_partition(task, partitions) for task in ids)
    assert max(loads.values()) - min(loads.get(partition, 0) for partition in range(partitions)) <= 1


def test_ids_are_the_keys_of_checkpoints_and_stay_what_they_are() -> None:
    assert task_ids(4, 2) == (2, 0, 4, 1)
    assert task_ids(4, 3) == (0, 1, 11, 2)

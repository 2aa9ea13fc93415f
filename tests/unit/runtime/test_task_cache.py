"""Which built tasks a worker keeps, and which it forgets."""

from __future__ import annotations

from typing import cast
from uuid import UUID, uuid4

import pytest

from engine.runtime import task_cache
from engine.runtime.task_cache import BuiltTask, CachedTask, TaskCache, TaskId

QUERY = uuid4()


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> TaskCache:
    monkeypatch.setattr(task_cache, "FORGET_S", 1e9)
    return TaskCache()


def place(task: int, epoch: int = 1, query: UUID = QUERY) -> TaskId:
    return TaskId(query, epoch, 0, task)


def kept(token: str, memory_bytes: int = 1) -> CachedTask:
    return CachedTask(token, "", cast("BuiltTask", None), memory_bytes)


def there(tasks: TaskCache, *places: TaskId) -> list[str | None]:
    """Return the tokens of tasks, which are kept as they were."""
    found = []
    for each in places:
        if (task := tasks.take(each)) is not None:
            tasks.put(each, task)
        found.append(None if task is None else task.token)
    return found


def test_a_task_that_is_taken_is_kept_no_longer(tasks: TaskCache) -> None:
    tasks.put(place(0), kept("a"))
    assert tasks.take(place(0)) == kept("a")
    assert tasks.take(place(0)) is None


def test_the_oldest_go_beyond_the_bound_in_number(tasks: TaskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_cache, "KEPT_TASKS", 3)
    for task in range(3):
        tasks.put(place(task), kept(f"{task}"))
    tasks.put(place(0), kept("again"))
    tasks.put(place(3), kept("3"))
    assert there(tasks, *map(place, range(4))) == ["again", None, "2", "3"]


def test_the_oldest_go_beyond_the_bound_in_memory_but_for_one(tasks: TaskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_cache, "KEPT_BYTES", 100)
    tasks.put(place(0), kept("0", 60))
    tasks.put(place(0), kept("0", 60))
    tasks.put(place(1), kept("1", 40))
    assert there(tasks, place(0), place(1)) == ["0", "1"], "what is put again counts once"
    tasks.take(place(0))
    tasks.put(place(2), kept("2", 60))
    assert there(tasks, place(1), place(2)) == ["1", "2"], "what was taken counts no longer"
    tasks.put(place(3), kept("3", 1_000))
    assert there(tasks, place(1), place(2), place(3)) == [None, None, "3"]


def test_a_new_launch_forgets_the_tasks_of_those_before(tasks: TaskCache) -> None:
    other = uuid4()
    tasks.put(place(0), kept("old"))
    tasks.put(place(0, query=other), kept("other"))
    tasks.forget_older(QUERY, 1)
    assert there(tasks, place(0)) == ["old"]
    tasks.forget_older(QUERY, 2)
    tasks.put(place(0, 2), kept("new"))
    tasks.forget_older(QUERY, 2)
    assert there(tasks, place(0), place(0, 2), place(0, query=other)) == [None, "new", "other"]

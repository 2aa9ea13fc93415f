"""Answers of the service: JSON objects with attributes for known members.

``slackwater.answers.answer_list`` has a class for each answer of the API; it is generated. An answer of a newer service may have more members:
all are available as items, and in ``raw``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class Item(Generic[T]):
    """An attribute that reads one member of the JSON.

    Args:
        read: converts the JSON to a value; None: the JSON itself.
        name: of the member; None: the attribute's name.
    """

    def __init__(self, read: Callable[[Any], T] | None = None, name: str | None = None) -> None:
        self._read = read
        self.name = name

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = self.name or name

    @overload
    def __get__(self, answer: None, owner: type) -> Self: ...
    @overload
    def __get__(self, answer: Answer, owner: type) -> T: ...
    def __get__(self, answer: Answer | None, owner: type) -> T | Self:
        if answer is None:
            return self
        value: Any = answer.raw.get(self.name or "")
        if self._read is not None and value is not None:
            return self._read(value)
        present: T = value
        return present


class Answer:
    """A JSON object of the service.

    Attributes:
        raw: the object as received.
    """

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.raw: dict[str, Any] = dict(raw)

    def __getitem__(self, name: str) -> Any:
        return self.raw[name]

    def __contains__(self, name: object) -> bool:
        return name in self.raw

    def __iter__(self) -> Iterator[str]:
        return iter(self.raw)

    def __len__(self) -> int:
        return len(self.raw)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a member, or ``default`` if there is none."""
        return self.raw.get(name, default)

    def keys(self) -> list[str]:
        """Return the names of members, so that ``dict(answer)`` works."""
        return list(self.raw)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Answer):
            return self.raw == other.raw
        return self.raw == other if isinstance(other, dict) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # a JSON object has none

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.raw!r})"


def moment(text: str) -> datetime:
    """Parse a time."""
    return datetime.fromisoformat(text)


def many(read: Callable[[Any], T]) -> Callable[[Any], tuple[T, ...]]:
    """Return a function that converts a list."""
    return lambda values: tuple(read(value) for value in values)


def by_name(read: Callable[[Any], T]) -> Callable[[Any], dict[str, T]]:
    """Return a function that converts an object with values of one kind."""
    return lambda values: {name: read(value) for name, value in values.items()}

"""What ``into.connector`` says of where results go: the base of the models of outputs."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from engine.errors import Problem
from engine.expressions.durations import Duration
from engine.expressions.model import Model


class DeliveryModel(Model, ABC):
    """The base of what a definition says of an output. A model also has the field ``type``."""

    goes_on: ClassVar[frozenset[str]] = frozenset()
    """Fields that say nothing of the target: where these alone change, the delivery goes on where it is."""

    start: Literal["earliest", "latest"] = Field(
        default="earliest",
        description="Which results a new delivery begins with: the first that the log has, or those that come from now on.",
    )

    @classmethod
    def name(cls) -> str:
        """Return the output's name, as ``type`` has it."""
        (name,) = cls.model_fields["type"].annotation.__args__  # type: ignore[union-attr]  # Literal["…"]
        return str(name)

    @property
    def gathers_ms(self) -> int:
        """For how long results are gathered before they are delivered, unless there are many."""
        return 0

    def faults(self, columns: tuple[str, ...], key: tuple[str, ...], *, is_table: bool) -> Iterator[Problem]:  # noqa: ARG002
        """Yield what is wrong beyond the shape of single fields, for a result of these columns and this key."""
        yield from ()

    def faults_of_new(self) -> Iterator[Problem]:
        """Yield what a user may not say now, and a definition that was stored earlier may: its delivery goes on."""
        yield from ()


class LakeDelivery(DeliveryModel, ABC):
    """The base of outputs where each delivery makes files, which are better few and large."""

    goes_on: ClassVar[frozenset[str]] = frozenset({"every"})

    path: str = Field(
        min_length=1,
        max_length=1_000,
        description="Its directory, below SLACKWATER_DELIVERY_ROOT; of delta with a `connection`, where in the bucket.",
        examples=["/lake/orders"],
    )
    every: Duration = Field(
        default=10_000, description="For how long results are gathered into one file; many are written at once. `0s`: not at all."
    )

    @property
    def gathers_ms(self) -> int:
        return self.every


def goes_on(before: Mapping[str, Any], after: DeliveryModel) -> bool:
    """Whether a delivery that was begun with one definition (as stored) goes on under another; else a new one begins."""
    wanted = after.model_dump(mode="json", by_alias=True)
    return all(before.get(name) == value for name, value in wanted.items() if name not in after.goes_on)

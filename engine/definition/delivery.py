"""What ``into.connector`` says of where results go: the base of the models of outputs."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from engine.definition.model import Model
from engine.errors import Problem


class DeliveryModel(Model, ABC):
    """The base of what a definition says of an output. A model also has the field ``type``."""

    start: Literal["earliest", "latest"] = Field(
        default="earliest",
        description="Which results a new delivery begins with: the first that the log has, or those that come from now on.",
    )

    @classmethod
    def name(cls) -> str:
        """Return the output's name, as ``type`` has it."""
        (name,) = cls.model_fields["type"].annotation.__args__  # type: ignore[union-attr]  # Literal["…"]
        return str(name)

    def faults(self, columns: tuple[str, ...], key: tuple[str, ...], *, is_table: bool) -> Iterator[Problem]:  # noqa: ARG002
        """Yield what is wrong beyond the shape of single fields, for a result of these columns and this key."""
        yield from ()

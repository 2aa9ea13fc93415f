"""Settings of SQL: what statements do where they do not say, and how much they may ask for."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class SqlSettings(BaseModel):
    """How statements are understood.

    Attributes:
        default_grace: of windows without GRACE PERIOD: ``klip10``: none, as KLIP-10 has it; ``ksqldb``: 24 hours less the window's size with
            EMIT CHANGES, none with EMIT FINAL.
        max_scanned_rows: how many rows a SELECT without EMIT may look at.
        read_seconds: how long a SELECT without EMIT may take, and all statements of one script that only look together.
        max_transient_queries: how many queries may run for readers of SELECT … EMIT alone, over all services of the database.
        python_functions: whether administrators may register functions in Python (CREATE FUNCTION), which run on the service's machines.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    default_grace: Literal["klip10", "ksqldb"] = "klip10"
    python_functions: bool = False
    max_scanned_rows: int = Field(default=100_000, ge=1)
    read_seconds: float = Field(default=60, gt=0, le=3_600)
    max_transient_queries: int = Field(default=10, ge=0)

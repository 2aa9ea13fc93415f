"""Settings of SQL: defaults of statements, and their limits."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class SqlSettings(BaseModel):
    """Interpretation and limits of statements.

    Attributes:
        default_grace: grace of windows without GRACE PERIOD: ``klip10``: none, as in KLIP-10; ``ksqldb``: 24 hours less the window's size with
            EMIT CHANGES, none with EMIT FINAL.
        max_scanned_rows: limit of rows that a SELECT without EMIT may read.
        read_seconds: time limit of a SELECT without EMIT, and of all reading statements of one script together.
        max_transient_queries: limit of queries that run only for readers of SELECT … EMIT, over all services of the database.
        python_functions: whether administrators may register functions in Python (CREATE FUNCTION), which run on the service's machines.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    default_grace: Literal["klip10", "ksqldb"] = "klip10"
    python_functions: bool = False
    max_scanned_rows: int = Field(default=100_000, ge=1)
    read_seconds: float = Field(default=60, gt=0, le=3_600)
    max_transient_queries: int = Field(default=10, ge=0)

"""Converts the error of a launch or a query to a report, which the lifecycle uses and the status shows."""

from __future__ import annotations

from app.catalog.drivers.states import ErrorReport
from engine.errors import DefinitionInvalid, DiskFull, EngineError
from engine.postgres.postgres import DATABASE_AWAY
from engine.state.segments.files import NO_SPACE

# A JVM's stack trace can be a megabyte; the log has all of it.
MAX_DETAIL_CHARS = 4_000


def report_of(error: Exception) -> ErrorReport:
    """Return the report of an error. An unexpected error is internal, and a retry may help."""
    detail = (str(error) or type(error).__name__)[:MAX_DETAIL_CHARS]
    if isinstance(error, DefinitionInvalid):
        problems = tuple((problem.pointer, problem.code, problem.detail) for problem in error.problems)
        return ErrorReport(error.code, error.domain, error.retryable, detail, problems)
    if isinstance(error, EngineError):
        return ErrorReport(error.code, error.domain, error.retryable, detail)
    if isinstance(error, DATABASE_AWAY):
        return ErrorReport("database_unavailable", "external", is_retryable=True, detail=detail)
    if isinstance(error, OSError) and error.errno in NO_SPACE:
        detail = f"a launch needs space on the disk of the checkpoints: {error}. Free space: the next attempt continues from the last commit"
        return ErrorReport(DiskFull.code, DiskFull.domain, DiskFull.retryable, detail)
    return ErrorReport(
        "internal_error", "internal", is_retryable=True, detail=f"{type(error).__name__}: {detail}"[:MAX_DETAIL_CHARS]
    )

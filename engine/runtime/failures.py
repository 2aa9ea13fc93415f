"""Carrying our errors through Spark.

An exception in a Python worker reaches the driver as text inside text: a traceback inside a Java exception inside another traceback. So
``marked`` marks errors where they leave our code, and ``decoded`` finds the mark.

Spark gets short texts in both directions. When a query stops, Spark searches the text of a failed batch for an interruption, with a
regular expression that recurses once for every character. With the 17 kB of a lost worker the stream's thread died of a
``StackOverflowError``, and the query ended without any error.
"""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from engine.errors import DefinitionInvalid, DiskFull, EngineError, ExternalError, InternalError, ResultLocked, SourceUnavailable
from engine.postgres.postgres import DATABASE_AWAY
from engine.runtime.limits.watchdog import Ended

_MARK = re.compile(r"<<slackwater (\{.*?\}) slackwater>>")

_LOST_WORKER = re.compile(
    r"Python worker exited unexpectedly|Python worker failed to connect back|ExecutorLostFailure|EOFException|"
    r"terminated with exception:\s+SQLSTATE: \w+ \(no cause message\)"
)
"""Spark's texts for a killed process: by hand, by the system for lack of memory, with its host. For the planning process Spark has no text,
because the cause, the end of its answer, has no message."""

_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded|\(File too large\)")

_NAMED_ERROR = re.compile(r"(?:Caused by: )?(?:[\w.]+\.)?(\w*(?:Error|Exception|Invalid|Broken|Corrupt)\w*: .+)")

_INTERRUPTION = re.compile(
    r"java\.lang\.InterruptedException|java\.io\.InterruptedIOException|java\.nio\.channels\.ClosedByInterruptException"
)
"""Spark takes this text for the consequence of a stop if it comes after ``_INTERRUPTED``."""

_INTERRUPTED = "py4j.protocol.Py4JJavaError: An error occurred while calling it: "

_MESSAGE_CHARS = 2_000

_TRACE_CHARS = 6_000


class _Marked(Exception):
    """An error on its way through Spark: the mark if it is one of ours, its origin, its message; all of bounded length."""


class BatchFailed(Exception):
    """Spark's error of a failed batch; the caller of ``spark_failure`` has the details."""


class WorkerLost(ExternalError):
    """A worker process died; the batch is repeated by the next launch."""

    code = "worker_lost"


@contextmanager
def marked() -> Iterator[None]:
    """Mark errors of ours that leave the block, and cut long texts; other errors pass unchanged."""
    try:
        yield
    except (EngineError, *DATABASE_AWAY) as caught:
        error = _named(caught)
        mark = json.dumps({"code": error.code, "message": str(error)[:_MESSAGE_CHARS]})
        raise _Marked(f"<<slackwater {mark} slackwater>>\n{_trace(caught)}") from None
    except Exception as error:
        if sum(map(len, traceback.format_exception(error))) <= _TRACE_CHARS:
            raise
        raise _Marked(f"{_trace(error)}{type(error).__name__}: {str(error)[:_MESSAGE_CHARS]}") from None


def spark_failure(error: BaseException) -> BatchFailed:
    """Return the exception to raise ``from None`` in Spark's callback for a batch that failed with ``error``."""
    text = str(error)
    if interruption := _INTERRUPTION.search(text):
        return BatchFailed(f"{_INTERRUPTED}{interruption[0]}")
    return BatchFailed(str(decoded(error)))


def decoded(error: BaseException) -> EngineError:
    """Return the error of ours inside an exception of Spark.

    Without such an error, return ``SourceUnavailable`` if the database was away, ``DiskFull`` if there was no space, ``WorkerLost`` if a
    process died, else ``InternalError`` with the last line that names an error. All of these are retryable.
    """
    if isinstance(error, (EngineError, *DATABASE_AWAY)):
        return _named(error)
    text = str(error)
    marks = _MARK.findall(text)
    if marks:
        mark = json.loads(marks[-1])
        return _class_of(mark["code"])(mark["message"])
    if full := _NO_SPACE.search(text):
        return DiskFull(f"the checkpoint cannot be written: {full[0]}. Free space: the next attempt goes on from the last commit")
    if _LOST_WORKER.search(text):
        return WorkerLost("a worker process died in the middle of a batch")
    return InternalError((_last_error(text) or f"{type(error).__name__}: {text}")[:_MESSAGE_CHARS])


def _named(error: BaseException) -> EngineError:
    """Return an error of ours unchanged, and one of the database's as an error of ours."""
    return error if isinstance(error, EngineError) else SourceUnavailable(f"the database gives no answer: {error}")


def _last_error(text: str) -> str | None:
    """Return the last line that names an error; only the part of a line that fits into a message is searched."""
    for line in reversed(text.splitlines()):
        if named := _NAMED_ERROR.match(line[:_MESSAGE_CHARS]):
            return named[1]
    return None


def _trace(error: BaseException) -> str:
    """Return an error's origin; for a long one, the innermost calls."""
    return "".join(traceback.format_tb(error.__traceback__))[-_TRACE_CHARS:]


def _class_of(code: str) -> type[EngineError]:
    """Find the class with this code; ``DefinitionInvalid`` is built from problems and never crosses Spark."""
    waiting: list[type[EngineError]] = [EngineError]
    while waiting:
        candidate = waiting.pop()
        if candidate.code == code and candidate is not DefinitionInvalid:
            return candidate
        waiting.extend(candidate.__subclasses__())
    return InternalError


_LOOK = "Look at what its expressions and Python functions make of its records"


class KillsItsWorker(WorkerLost):
    """The worker of a slot died while only this query was in the slot."""

    code = "worker_crashed"


class StallsItsWorker(WorkerLost):
    """A slot's worker had to be ended because it stalled, while only this query was in the slot."""

    code = "worker_stalled"


class ExhaustsItsWorker(WorkerLost):
    """A slot's worker had to be ended because it took more memory than a worker may, while only this query was in the slot."""

    code = "worker_out_of_memory"


BETTER_ALONE: Final = (KillsItsWorker, StallsItsWorker, ExhaustsItsWorker, ResultLocked)
"""A query that failed with one of these does its next batch alone: in a shared slot all would wait for a repeat of the failure."""


def crash_error(error: EngineError, ended: Ended | None) -> EngineError:
    """Return the error of a query that was alone.

    Args:
        error: how its slot ended.
        ended: why we ended a process; None: we did not, or the kernel ended it for us.
    """
    if ended is None:
        return KillsItsWorker(f"{error}, in which this query was alone. {_LOOK}")
    where = "while its next batch was planned" if ended.batch_id is None else f"in batch {ended.batch_id}"
    if ended.reason == "stalled":
        return StallsItsWorker(
            f"{where} it made no progress for {ended.amount:g} s, and its worker was ended (SLACKWATER_SPARK__STALL_TIMEOUT_MS bounds that). "
            f"{_LOOK}, and at whether its files can be read"
        )
    return ExhaustsItsWorker(
        f"{where} its worker had {_mib(ended.amount)} MiB of memory, of {_mib(ended.most)} that one may have, and was ended "
        f"(SLACKWATER_SPARK__WORKER_MEMORY bounds that). {_LOOK}, and at joins with many partners"
    )


def _mib(size: float) -> int:
    return round(size / (1 << 20))

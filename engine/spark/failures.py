"""Carrying our errors through Spark.

An exception in a Python worker reaches the driver as text inside text: a traceback inside a Java exception inside another traceback. So
errors are marked where they leave our code (``marked``) and found again by the mark (``decoded``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from engine.errors import DefinitionInvalid, EngineError, ExternalError, InternalError

_MARK = re.compile(r"<<slackwater (\{.*?\}) slackwater>>")

_LOST_WORKER = re.compile(
    r"Python worker exited unexpectedly|Python worker failed to connect back|ExecutorLostFailure|EOFException"
)
"""How Spark says that a worker process was killed: by hand, by the system for want of memory, with its host."""

_LAST_ERROR = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Invalid|Broken|Corrupt)\w*: .+)$", re.MULTILINE)

_MESSAGE_CHARS = 2_000


class _Marked(Exception):
    """An error of ours on its way through Spark."""


class WorkerLost(ExternalError):
    """A worker process died; the batch is repeated by the next launch."""

    code = "worker_lost"


@contextmanager
def marked() -> Iterator[None]:
    """Mark errors of ours that leave the block; others pass unchanged."""
    try:
        yield
    except EngineError as error:
        text = json.dumps({"code": error.code, "message": str(error)[:_MESSAGE_CHARS]})
        raise _Marked(f"<<slackwater {text} slackwater>>") from error


def decoded(error: BaseException) -> EngineError:
    """Return the error of ours that an exception of Spark carries.

    What carries none is ``WorkerLost`` where a process died, else ``InternalError`` with the last line that names an error. Both are
    retryable.
    """
    if isinstance(error, EngineError):
        return error
    text = str(error)
    marks = _MARK.findall(text)
    if marks:
        mark = json.loads(marks[-1])
        return _class_of(mark["code"])(mark["message"])
    if _LOST_WORKER.search(text):
        return WorkerLost("a worker process died in the middle of a batch")
    named = _LAST_ERROR.findall(text)
    return InternalError((named[-1] if named else f"{type(error).__name__}: {text}")[:_MESSAGE_CHARS])


def _class_of(code: str) -> type[EngineError]:
    """Find the class with this code; ``DefinitionInvalid`` is built from problems and never crosses Spark."""
    waiting: list[type[EngineError]] = [EngineError]
    while waiting:
        candidate = waiting.pop()
        if candidate.code == code and candidate is not DefinitionInvalid:
            return candidate
        waiting.extend(candidate.__subclasses__())
    return InternalError

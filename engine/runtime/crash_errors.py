"""The errors of a query that ended a worker while it was alone there. Each names the cause and a remedy."""

from __future__ import annotations

from typing import Final

from engine.errors import EngineError, ResultLocked
from engine.runtime.failures import WorkerLost
from engine.runtime.limits.watchdog import Ended

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

"""How much CPU a piece of code takes, whatever else the test process does: other tests leave threads and a large heap behind."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def cpu_seconds_below(bound: float) -> Iterator[None]:
    """Fail if the block takes this thread more CPU than that.

    For growth that would take minutes: set the bound to ten times or more of what the block needs. Garbage collection is off, because
    its time grows with what earlier tests left on the heap.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    began = time.thread_time()
    try:
        yield
    finally:
        taken = time.thread_time() - began
        if was_enabled:
            gc.enable()
    assert taken < bound, f"{taken:.2f} s of CPU"

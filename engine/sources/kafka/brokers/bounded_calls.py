"""Calls of librdkafka that exceed their time limit."""

from __future__ import annotations

import threading
from collections.abc import Callable


def ends_within(seconds: float, call: Callable[[], None]) -> bool:
    """Make a call in a separate thread, and abandon the thread if the call takes longer; return whether the call has ended.

    Raises:
        BaseException: an error that the call raises in time.
    """
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - the caller's thread raises it again
            raised.append(error)

    thread = threading.Thread(target=run, name="bounded-call", daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    return not thread.is_alive()

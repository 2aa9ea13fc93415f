"""The librdkafka that ``confluent_kafka`` has loaded, called directly: its public C interface (rdkafka.h), stable within a major version.

``library`` returns None if this is impossible: another system than 64-bit Linux, another interpreter, another major version, or a failed
self-check. Then records are fetched through ``confluent_kafka``, at about twice the CPU.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_ssize_t, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from engine.sources.kafka.brokers.fetching.gathering import gathered

OFF: Final = "SLACKWATER_KAFKA_PLAIN_FETCH"
"""Set to 1, it makes processes fetch through ``confluent_kafka``: a way out if direct calls cause problems."""

MAJOR: Final = 2
CONSUMER: Final = 1
EVENT_ERROR: Final = 0x8
NO_CONSUMER_CLOSE: Final = 0x8

MESSAGE: Final = np.dtype(
    {
        "names": ["err", "partition", "payload", "len", "key", "key_len", "offset"],
        "formats": ["<i4", "<i4", "<u8", "<u8", "<u8", "<u8", "<i8"],
        "offsets": [0, 16, 24, 32, 40, 48, 56],
        "itemsize": 72,
    }
)
"""The public ``rd_kafka_message_t`` on 64-bit systems."""

_CALLS: Final[dict[str, tuple[Any, ...]]] = {
    "conf_new": (c_void_p,),
    "conf_destroy": (None, c_void_p),
    "conf_set": (c_int, c_void_p, c_char_p, c_char_p, c_char_p, c_size_t),
    "conf_set_events": (None, c_void_p, c_int),
    "conf_set_log_cb": (None, c_void_p, c_void_p),
    "new": (c_void_p, c_int, c_void_p, c_char_p, c_size_t),
    "destroy_flags": (None, c_void_p, c_int),
    "topic_new": (c_void_p, c_void_p, c_char_p, c_void_p),
    "topic_destroy": (None, c_void_p),
    "consume_start": (c_int, c_void_p, c_int32, c_int64),
    "consume_stop": (c_int, c_void_p, c_int32),
    "consume_batch": (c_ssize_t, c_void_p, c_int32, c_int, c_void_p, c_size_t),
    "queue_get_main": (c_void_p, c_void_p),
    "queue_destroy": (None, c_void_p),
    "queue_poll": (c_void_p, c_void_p, c_int),
    "event_type": (c_int, c_void_p),
    "event_error": (c_int, c_void_p),
    "event_error_string": (c_char_p, c_void_p),
    "event_destroy": (None, c_void_p),
    "err2str": (c_char_p, c_int),
    "last_error": (c_int,),
}
"""Result and arguments, by name without its prefix."""

_SHORT_CALLS: Final[dict[str, tuple[Any, ...]]] = {
    "message_destroy": (None, c_void_p),
    "message_timestamp": (c_int64, c_void_p, c_void_p),
    "message_headers": (c_int, c_void_p, POINTER(c_void_p)),
    "header_get_all": (c_int, c_void_p, c_size_t, POINTER(c_char_p), POINTER(c_void_p), POINTER(c_size_t)),
}
"""Functions of single messages, which never block: called without releasing the interpreter's lock, which would cost more than they do."""


class Library:
    """Functions of librdkafka, by their names without the prefix."""

    def __init__(self, path: str) -> None:
        for loaded, calls in ((ctypes.CDLL(path), _CALLS), (ctypes.PyDLL(path), _SHORT_CALLS)):
            for name, (result, *arguments) in calls.items():
                function = getattr(loaded, f"rd_kafka_{name}")
                function.restype, function.argtypes = result, arguments
                setattr(self, name, function)
        self.version: int = ctypes.CDLL(path).rd_kafka_version()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


@cache
def library() -> Library | None:
    """Return the library; None: it cannot be called here."""
    if os.environ.get(OFF) == "1" or not _fits():
        return None
    path = _path()
    if path is None:
        return None
    try:
        found = Library(path)
        return found if found.version >> 24 == MAJOR and _can_gather() else None
    except (OSError, AttributeError, ValueError, NotImplementedError):  # another library than expected, another Arrow
        return None


def _fits() -> bool:
    is_usual = sys.byteorder == "little" and sys.maxsize > 1 << 32 and sys.implementation.name == "cpython"
    return is_usual and platform.system() == "Linux"


def _path() -> str | None:
    """Return where the library was loaded from: a wheel, or the system's library if the package was built there."""
    import confluent_kafka.cimpl  # noqa: F401 - loads it

    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.partition("/")
        if path[1] and "librdkafka" in path[2].rpartition("/")[2]:
            return f"/{path[2]}"
    return None


def _can_gather() -> bool:
    """Whether this version of Arrow copies the values of views."""
    values = [b"", b"short", b"longer than twelve bytes"]
    held = [ctypes.create_string_buffer(value) for value in values]
    addresses = np.array([ctypes.addressof(each) for each in held] + [0], np.uint64)
    sizes = np.array([len(value) for value in values] + [0], np.uint64)
    return bool(gathered(addresses, sizes).to_pylist() == [*values, None])

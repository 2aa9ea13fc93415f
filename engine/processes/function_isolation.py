"""Takes rights away from the process that runs functions of users: it reads no other process, and as root it has no rights of root.

The environment and the memory of the caller hold keys, passwords and secrets of connections, and Linux shows both in ``/proc`` to processes
of the same user. Each step is done where the system has it, and ``can_read_caller`` looks whether they sufficed.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

OTHER_ID: Final = 65_534
"""Of the user and the group ``nobody``."""

_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_CAPBSET_DROP: Final = 24
_PR_CAP_AMBIENT: Final = 47
_PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
_CREATE_RULESET: Final = 444
_RESTRICT_SELF: Final = 446
_VERSION: Final = 1
_SCOPES_SINCE: Final = 6
_MAKE_BLOCK_DEVICE: Final = 1 << 11
_SCOPE_SOCKETS_AND_SIGNALS: Final = 0b11


def leave_other_processes() -> None:
    """Enter a domain of Landlock: no other process can be traced or read any more, nor signalled since version 6 (Linux 6.12).

    Counts for this thread and those that it starts: call it while there is one. Does nothing where the kernel has no Landlock.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULESET, None, 0, _VERSION)
    if version < 1 or libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return
    # A domain needs something that it handles; before there were scopes, the least is not to make block devices.
    said = (
        struct.pack("QQQ", 0, 0, _SCOPE_SOCKETS_AND_SIGNALS) if version >= _SCOPES_SINCE else struct.pack("Q", _MAKE_BLOCK_DEVICE)
    )
    rules = libc.syscall(_CREATE_RULESET, said, len(said), 0)
    if rules >= 0:
        libc.syscall(_RESTRICT_SELF, rules, 0)
        os.close(rules)


def give_up_root() -> None:
    """As root, be another user without capabilities; stay root without them where that user cannot read Python's own files."""
    if os.geteuid() != 0:
        return
    with suppress(OSError):  # a container may have taken the right to change users
        os.setgroups([])
        if _is_readable_to_other():
            os.setresgid(OTHER_ID, OTHER_ID, OTHER_ID)
            os.setresuid(OTHER_ID, OTHER_ID, OTHER_ID)
    if sys.platform == "linux":
        _drop_capabilities()


def can_read_caller() -> bool:
    """Whether this process can still read the environment of the one that started it."""
    try:
        with open(f"/proc/{os.getppid()}/environ", "rb"):  # noqa: PTH123 - tried as a function would
            return True
    except OSError:
        return False


def bound_memory(most_bytes: int) -> None:
    """Let this process map so many bytes beside what it has mapped so far, and leave no dump of its memory behind."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        with open("/proc/self/statm") as file:  # noqa: PTH123
            limit = int(file.read().split()[0]) * resource.getpagesize() + most_bytes
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _is_readable_to_other() -> bool:
    """Whether the other user can import what a function may name."""
    places = [os.__file__, *(str(place) for place in map(Path, sys.path) if place.is_dir())]
    os.seteuid(OTHER_ID)
    try:
        return all(os.access(place, os.R_OK, effective_ids=True) for place in places)
    finally:
        os.seteuid(0)


def _drop_capabilities() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(64):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    version_3 = struct.pack("Ii", 0x2008_0522, 0)
    libc.capset(version_3, bytes(24))

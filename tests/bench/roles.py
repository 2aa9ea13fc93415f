"""CPU seconds and memory of a service's processes, by what they do. Memory is proportional: pages that several processes share count once."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import psutil

ALL = "Pss:"
ANONYMOUS = "Pss_Anon:"
"""Without pages of files, which are the kernel's to take back."""

_BY_COMMAND = {
    "org.apache.spark": "JVM",
    "kafka.Kafka": "Kafka broker",
    "app.driver.delivering": "deliveries",
    "app.driver": "driver",
    "app.cli": "API",
    "fork_request": "Python workers",
    "pyspark": "Python workers",
    "fork_server": "Python workers",
    "postgres": "Postgres",
}


def cpu_by_role(pid: int) -> dict[str, float]:
    """Return the CPU seconds that the processes below one have spent since they began; those that ended meanwhile are missing."""
    spent: defaultdict[str, float] = defaultdict(float)
    for process in _tree(pid):
        try:
            times = process.cpu_times()
            spent[role_of(process)] += times.user + times.system
        except psutil.Error:
            continue
    return dict(spent)


def memory_by_role(pid: int, kind: str = ALL) -> dict[str, float]:
    """Return the proportional set sizes in MiB."""
    sizes: defaultdict[str, float] = defaultdict(float)
    for process in _tree(pid):
        try:
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
            sizes[role_of(process)] += next(int(line.split()[1]) for line in lines if line.startswith(kind)) / 1024
        except (psutil.Error, OSError):
            continue
    return dict(sizes)


def _tree(pid: int) -> list[psutil.Process]:
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def role_of(process: psutil.Process) -> str:
    """Say what a process does. Raises psutil.Error where it has ended."""
    command = " ".join(process.cmdline())
    return next((role for part, role in _BY_COMMAND.items() if part in command), "other")

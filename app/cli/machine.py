"""Checks of `slackwater doctor` about the machine: Python, Java, a user with a name, memory, directories. Uses no database and no network."""

from __future__ import annotations

import os
import platform
import pwd
import shutil
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from app.settings.settings import Settings


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        remedy: how to fix a fault; None without one.
    """

    subject: str
    is_ok: bool
    detail: str
    remedy: str | None = None


MINIMUM_PYTHON = (3, 11)
# With less, an hour of a busy stream's state and log may not fit.
MINIMUM_FREE_BYTES = 2 * 1024**3
# The service, the driver's Python, its spare and the JVM's memory beside its heap; measured with a few queries with low load.
BESIDE_THE_HEAP_BYTES = 1024**3
_SHIFTS = {"k": 10, "m": 20, "g": 30}


def examine_machine(settings: Settings) -> list[Finding]:
    """Check everything on this machine; the checks leave nothing behind."""
    findings = [_python(), _java(), _pyspark(), user_finding(os.getuid()), _memory(settings)]
    findings.append(_writable("Data directory", settings.data_dir.expanduser().resolve(), "SLACKWATER_DATA_DIR"))
    if settings.checkpoint_url is not None:
        findings.append(_writable("Checkpoint directory", settings.checkpoints_dir, "SLACKWATER_CHECKPOINT_URL"))
    if settings.state_url is not None:
        findings.append(_cache(settings))
    if settings.delivery_root is not None:
        findings.append(_writable("Delivery directory", settings.delivery_root, "SLACKWATER_DELIVERY_ROOT"))
    if settings.files_root is not None:
        findings.append(_readable("Files directory", settings.files_root, "SLACKWATER_FILES_ROOT"))
    if settings.secrets_dir is not None:
        findings.append(_readable("Secrets directory", settings.secrets_dir, "SLACKWATER_SECRETS_DIR"))
    return findings


def _python() -> Finding:
    version = platform.python_version()
    if sys.version_info[:2] < MINIMUM_PYTHON:
        return Finding("Python", False, version, "install Python 3.11 or newer and make the environment again")
    return Finding("Python", True, f"{version} at {sys.executable}")


def _java() -> Finding:
    from engine.spark.java import describe

    java = describe()
    return Finding("Java", java.is_usable, java.detail, java.remedy)


def _pyspark() -> Finding:
    try:
        return Finding("PySpark", True, metadata.version("pyspark"))
    except metadata.PackageNotFoundError as error:
        return Finding("PySpark", False, str(error), "pip install 'slackwater'; the driver cannot start without it")


def user_finding(uid: int) -> Finding:
    """Check the user: a container may run with any uid, and Spark asks the system for its name."""
    name = _name_of(uid)
    if name is None:
        remedy = "run it as a user that /etc/passwd names (the image has 10001)"
        return Finding("User", False, f"uid {uid} has no name on this system, and Spark does not start without one", remedy)
    return Finding("User", True, f"{name} (uid {uid})")


def _memory(settings: Settings) -> Finding:
    """Check whether the heap of the driver's JVM fits at all; the memory beside it depends on the queries."""
    from engine.runtime.limits.watchdog import machine_memory

    heap = settings.spark.driver_memory
    total, needed = machine_memory(), (int(heap[:-1]) << _SHIFTS[heap[-1].lower()]) + BESIDE_THE_HEAP_BYTES
    detail = f"{total / 1024**3:.1f} GiB for this machine or container; the driver's heap may take {heap} of it"
    if total < needed:
        remedy = f"give it {needed / 1024**3:.0f} GiB and what queries need, or lower SLACKWATER_SPARK__DRIVER_MEMORY"
        return Finding("Memory", False, detail, remedy)
    return Finding("Memory", True, detail)


def _writable(subject: str, directory: Path, variable: str) -> Finding:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory) as probe:
            probe.write(b"slackwater")
            probe.flush()
            os.fsync(probe.fileno())
        free = shutil.disk_usage(directory).free
    except OSError as error:
        return Finding(subject, False, f"{directory}: {error.strerror}", f"set {variable} to a directory you may write to")
    detail = f"{directory}, {free / 1024**3:.1f} GiB free"
    if free < MINIMUM_FREE_BYTES:
        return Finding(subject, False, detail, f"free some space, or set {variable} to a larger disk")
    return Finding(subject, True, detail)


def _cache(settings: Settings) -> Finding:
    """Check the disk for copies of segments in the object store: they fill their limit."""
    subject, bound = "State cache", settings.state_cache_bytes
    directory_finding = _writable(subject, settings.cache_dir, "SLACKWATER_STATE_CACHE_DIR")
    if not directory_finding.is_ok:
        return directory_finding
    cached_bytes = sum(path.stat().st_size for path in settings.cache_dir.rglob("*") if path.is_file())
    room = shutil.disk_usage(settings.cache_dir).free + cached_bytes
    detail = f"{directory_finding.detail}; it may take {bound / 1024**3:.1f} GiB"
    if room < bound:
        return Finding(
            subject, False, detail, "lower SLACKWATER_STATE_CACHE_BYTES, or set SLACKWATER_STATE_CACHE_DIR to a larger disk"
        )
    return Finding(subject, True, detail)


def _readable(subject: str, directory: Path, variable: str) -> Finding:
    try:
        next(directory.iterdir(), None)
    except OSError as error:
        return Finding(subject, False, f"{directory}: {error.strerror}", f"set {variable} to a directory that may be read")
    return Finding(subject, True, f"{directory} can be read")


def _name_of(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None

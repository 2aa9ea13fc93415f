"""Settings of the driver's SparkSession."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from app.settings.oidc_settings import is_loopback

_MEMORY = r"^\d+[kmgKMG]$"
_SHIFTS = {"k": 10, "m": 20, "g": 30}
_OF_CLUSTERS = ("executor_memory", "executor_cores", "max_cores", "driver_host", "auth_secret")
_LOCAL_CORES = re.compile(r"local\[(\d+|\*)")
_MASTER = re.compile(r"local|local\[(\d+|\*)(,\d+)?\]|spark://[^\s/,:]+:\d+(,[^\s/,:]+:\d+)*|spark://\[[0-9a-f:]+\]:\d+")


class SparkSettings(BaseModel):
    """Settings to build the driver's SparkSession with.

    Attributes:
        master: ``local[N]``: N cores of this machine; ``spark://HOST:PORT``: a standalone cluster.
        driver_memory: heap of the driver's JVM.
        shuffle_partitions: number of tasks that work at once, over the whole cluster.
        worker_memory: memory limit of each Python worker, for its own memory. The query at work in a worker over the limit runs alone next;
            if it ends that worker too, it fails (``worker_out_of_memory``). None: half of the machine's memory for all cores together, at
            least 1g.
        stall_timeout_ms: time limit of a query's work in a worker without progress (``worker_stalled``); ten times as long if it has a
            streaming query of its own.
        class_archive: store Spark's classes (180 MB), so that later starts use half the CPU.
        class_archive_dir: where they are stored; None: in the data directory. Services of one user may share it; nobody else may write there.
        executor_memory: heap of each executor of a cluster (default 1g); its Python workers need memory of their own.
        executor_cores: cores of each executor of a cluster; None: all cores of its worker.
        max_cores: cores of the cluster for this driver; None: all free ones, so that other drivers would wait.
        driver_host: name or address under which the executors of a cluster reach the driver; None: the host's own guess.
        auth_secret: shared secret of the processes of a cluster; their connections are then encrypted too. Its master and
            workers have the same in ``_SPARK_AUTH_SECRET``. Required if they may be on other hosts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    master: str = "local[2]"
    driver_memory: str = Field(default="2g", pattern=_MEMORY)
    shuffle_partitions: int = Field(default=2, ge=1, le=1024)
    worker_memory: str | None = Field(default=None, pattern=_MEMORY)
    stall_timeout_ms: int = Field(default=120_000, ge=1_000)
    class_archive: bool = True
    class_archive_dir: Path | None = None
    executor_memory: str | None = Field(default=None, pattern=_MEMORY)
    executor_cores: int | None = Field(default=None, ge=1)
    max_cores: int | None = Field(default=None, ge=1)
    driver_host: str | None = Field(default=None, min_length=1)
    auth_secret: SecretStr | None = Field(default=None, min_length=32)

    @field_validator("master")
    @classmethod
    def _is_supported(cls, value: str) -> str:
        if not _MASTER.fullmatch(value):
            raise ValueError(
                f"{value}: not a master that is supported. local[N] takes N cores of this machine, spark://HOST:PORT a standalone cluster"
            )
        return value

    @model_validator(mode="after")
    def _counts(self) -> Self:
        """Refuse settings that would be ignored."""
        cluster_settings = [name for name in _OF_CLUSTERS if getattr(self, name) is not None]
        if cluster_settings and not self.is_cluster:
            raise ValueError(
                f"{', '.join(cluster_settings)} count on a cluster only; the master {self.master} has no executors of its own"
            )
        if self.max_cores is not None and self.executor_cores is not None and self.max_cores < self.executor_cores:
            raise ValueError(
                f"max_cores ({self.max_cores}) leaves no room for one executor of {self.executor_cores} executor_cores"
            )
        return self

    @property
    def worker_memory_bytes(self) -> int | None:
        """``worker_memory`` in bytes; None: not set."""
        if self.worker_memory is None:
            return None
        return int(self.worker_memory[:-1]) << _SHIFTS[self.worker_memory[-1].lower()]

    @property
    def query_cores(self) -> int:
        """How many cores one query can use: not more tasks work at once than ``shuffle_partitions``, nor than the master has cores.

        How many cores a cluster has is not known here, unless ``max_cores`` bounds them.
        """
        return min(self.shuffle_partitions, self._cores or self.shuffle_partitions)

    @property
    def _cores(self) -> int | None:
        if self.is_cluster:
            return self.max_cores
        named = _LOCAL_CORES.match(self.master)
        if named is None:
            return 1
        return len(os.sched_getaffinity(0)) if named[1] == "*" else int(named[1])

    @property
    def is_cluster(self) -> bool:
        """Whether executors are separate processes, perhaps on other hosts."""
        return self.master.startswith("spark://")

    @property
    def is_elsewhere(self) -> bool:
        """Whether executors may be on other hosts."""
        return not all(is_loopback(host) for host, _ in self.masters)

    @property
    def masters(self) -> list[tuple[str, int]]:
        """Hosts and ports of the cluster's masters; empty without a cluster."""
        if not self.is_cluster:
            return []
        addresses = [address.rpartition(":") for address in self.master.removeprefix("spark://").split(",")]
        return [(host.strip("[]"), int(port)) for host, _, port in addresses]

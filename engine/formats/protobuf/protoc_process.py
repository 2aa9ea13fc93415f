"""protoc within bounds of processor time, memory and output, started by ``python -m``. Its input may come from anybody."""

from __future__ import annotations

import resource
import sys
from typing import Final

from grpc_tools import protoc

CPU_SECONDS: Final = 10
MEMORY_BYTES: Final = 1 << 30
FILE_BYTES: Final = 8 << 20
"""Bound of one file: the result, or the errors."""


def main() -> int:
    """Set this process's bounds, and compile."""
    for kind, most in (
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (most, most))
    return int(protoc.main(sys.argv))


if __name__ == "__main__":
    sys.exit(main())

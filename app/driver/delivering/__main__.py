"""``python -P -m app.driver.delivering``: started by a driver; it reads the same environment variables."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import uuid

import structlog

from app.driver.delivering.process import DeliveryProcess
from app.settings.effective_settings import load_settings
from app.telemetry.setup import configure_logging
from engine.processes.python_processes import make_children_safe

log = structlog.stdlib.get_logger(__name__)


def main() -> int:
    """Read the command line and the environment, and deliver; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -P -m app.driver.delivering", description="Delivers results.")
    parser.add_argument("--owner", type=uuid.UUID, required=True, help="id of the driver that started this process")
    parser.add_argument("--parent-pid", type=int, default=None, help="stop when this process, the parent, has exited")
    arguments = parser.parse_args()
    make_children_safe()
    settings = load_settings()
    os.umask(0o077)
    configure_logging(settings.log)
    try:
        DeliveryProcess(settings, arguments.owner, arguments.parent_pid).run()
    except Exception:
        log.exception("delivering_crashed")
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

"""The command line of a driver with any engine."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import uuid
from collections.abc import Callable

import structlog

from app.driver.launches.ports import Runner
from app.driver.process import Identity, run_driver
from app.driver.supervisor.turn import await_turn
from app.settings.effective_settings import load_settings
from app.settings.settings import Settings
from app.telemetry.setup import configure_logging
from engine.processes.python_processes import make_children_safe

EXIT_CRASHED = 1
log = structlog.stdlib.get_logger(__name__)


def main(make_runner: Callable[[Settings], Runner], on_turn: Callable[[], None] | None = None) -> None:
    """Read the command line and the environment, run the driver, and exit, even if threads hang.

    A spare waits first until it becomes the driver; imports after that would delay it. A supervisor passes a driver id and its own pid. A driver
    that is started by hand or by an orchestrator needs neither.

    Args:
        make_runner: builds the engine.
        on_turn: called when a spare becomes the driver; returns at once. None: nothing is called.
    """
    parser = argparse.ArgumentParser(
        prog="python -P -m app.driver", description="Runs streaming queries; configured by SLACKWATER_ variables."
    )
    parser.add_argument(
        "--driver-id", type=uuid.UUID, default=None, help="id of this process in slackwater.driver (default: a new one)"
    )
    parser.add_argument("--supervisor-pid", type=int, default=None, help="stop when this process, the parent, has exited")
    parser.add_argument(
        "--spare",
        action="store_true",
        help="wait, and become the driver when the supervisor says so on standard input, which is a socket",
    )
    arguments = parser.parse_args()
    if arguments.spare:
        if not await_turn():
            return
        if on_turn is not None:
            on_turn()
    make_children_safe()
    settings = load_settings()
    # The output of this process and its children has users' records: no other user of the machine may read it.
    os.umask(0o077)
    configure_logging(settings.log)
    # py4j logs every message that it sends at INFO.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        code = run_driver(settings, make_runner, Identity(arguments.driver_id or uuid.uuid4(), arguments.supervisor_pid))
    except Exception:
        log.exception("driver_crashed")
        code = EXIT_CRASHED
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

"""The command line of a driver, whatever its engine."""

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
    """Read the command line and the environment, be a driver, and leave: also with threads that hang.

    A spare waits for its turn first; what is not imported by now delays it later. Under a supervisor it gets its id and the supervisor's pid;
    started by hand or by an orchestrator it needs neither.

    Args:
        make_runner: the engine.
        on_turn: called as soon as a spare's turn has come; returns at once. None: nothing is.
    """
    parser = argparse.ArgumentParser(
        prog="python -P -m app.driver", description="Runs streaming queries; told by SLACKWATER_ variables."
    )
    parser.add_argument(
        "--driver-id", type=uuid.UUID, default=None, help="name of this process in slackwater.driver (default: a new one)"
    )
    parser.add_argument("--supervisor-pid", type=int, default=None, help="end when this process, the parent, is gone")
    parser.add_argument(
        "--spare",
        action="store_true",
        help="be the driver when the supervisor says so at standard input, a socket, and not before",
    )
    arguments = parser.parse_args()
    if arguments.spare:
        if not await_turn():
            return
        if on_turn is not None:
            on_turn()
    make_children_safe()
    settings = load_settings()
    # What this process and its children write holds users' records: nobody else on the machine is to read it.
    os.umask(0o077)
    configure_logging(settings.log)
    # py4j tells every message it sends at INFO.
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

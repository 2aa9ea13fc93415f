"""``python -m tests.faults.armed_driver``: the real driver, which dies where ``points`` are passed."""

import os

from app.driver import process
from app.driver.entry import main
from app.driver.launches.launching import discard_query
from engine.runtime.launch_state import open_state
from engine.runtime.limits import load as weight
from engine.spark.streams import runner
from engine.spark.streams import scheduling as rounds
from tests.faults.points import ALONE, POINT, ArmedRunner, ArmedSink, ArmedSource, ArmedWork, passing_after

ARMED = (
    (runner, "Sink", ArmedSink),
    (runner, "StageWork", ArmedWork),
    (runner, "open_state", passing_after("state opened", open_state)),
    (rounds, "PacketSource", ArmedSource),
    (process, "discard_query", passing_after("purging", discard_query)),
    (weight, "HEAVY_ROWS", 1 if os.environ.get(POINT) == ALONE else weight.HEAVY_ROWS),
)

if __name__ == "__main__":
    for module, name, armed in ARMED:
        assert hasattr(module, name), f"{module.__name__} has no {name} any more"
        setattr(module, name, armed)
    main(ArmedRunner)

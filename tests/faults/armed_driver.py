"""``python -m tests.faults.armed_driver``: the real driver, which dies where ``points`` are passed."""

import os

from app.driver import process
from app.driver.entry import main
from app.driver.launches.launching import discard_query
from engine.runtime.launches import launched_query
from engine.runtime.launches.launch_state import open_state
from engine.runtime.limits import load
from engine.spark.streams import scheduling
from tests.faults.points import ALONE, POINT, ArmedRunner, ArmedSink, ArmedSource, ArmedWork, passing_after

ARMED = (
    (launched_query, "Sink", ArmedSink),
    (launched_query, "StageWork", ArmedWork),
    (launched_query, "open_state", passing_after("state opened", open_state)),
    (scheduling, "PacketSource", ArmedSource),
    (process, "discard_query", passing_after("purging", discard_query)),
    (load, "HEAVY_ROWS", 1 if os.environ.get(POINT) == ALONE else load.HEAVY_ROWS),
)

if __name__ == "__main__":
    for module, name, armed in ARMED:
        assert hasattr(module, name), f"{module.__name__} has no {name} any more"
        setattr(module, name, armed)
    main(ArmedRunner)

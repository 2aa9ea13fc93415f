"""``python -m tests.faults.armed_driver``: the real driver, which dies where ``points`` are passed."""

from app.driver import process
from app.driver.entry import main
from app.driver.launching import discard_query
from engine.spark import runner, session
from engine.spark.launch_state import open_state
from tests.faults.points import ArmedRunner, ArmedSink, ArmedSource, ArmedWork, passing_after

ARMED = (
    (runner, "Sink", ArmedSink),
    (runner, "StageWork", ArmedWork),
    (runner, "open_state", passing_after("state opened", open_state)),
    (session, "PacketSource", ArmedSource),
    (process, "discard_query", passing_after("purging", discard_query)),
)

if __name__ == "__main__":
    for module, name, armed in ARMED:
        assert hasattr(module, name), f"{module.__name__} has no {name} any more"
        setattr(module, name, armed)
    main(ArmedRunner)

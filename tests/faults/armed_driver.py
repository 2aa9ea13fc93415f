"""``python -m tests.faults.armed_driver``: the real driver, which dies where ``points`` are passed."""

from app.driver import process, spark_runner
from app.driver.entry import main
from app.driver.launching import discard_query
from engine.spark import runner, session
from engine.spark.checkpoint import prepare_checkpoint
from tests.faults.points import ArmedProcessor, ArmedRunner, ArmedSink, ArmedSource, passing_after

ARMED = (
    (runner, "Sink", ArmedSink),
    (runner, "StageProcessor", ArmedProcessor),
    (session, "PacketSource", ArmedSource),
    (spark_runner, "prepare_checkpoint", passing_after("checkpoint taken over", prepare_checkpoint)),
    (process, "discard_query", passing_after("purging", discard_query)),
)

if __name__ == "__main__":
    for module, name, armed in ARMED:
        assert hasattr(module, name), f"{module.__name__} has no {name} any more"
        setattr(module, name, armed)
    main(ArmedRunner)

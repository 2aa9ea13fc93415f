"""Whether a launch whose driver is gone had a batch under way, as far as this host can know."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from app.catalog.stored.state_files import checkpoint_directory
from engine.commit.task_states import load_committed_state
from engine.postgres.postgres import Connection
from engine.runtime.checkpoint import planned_batch, run_of


def is_unfinished(connection: Connection, checkpoints_dir: Path, query_id: UUID, checkpoint_id: UUID, epoch: int) -> bool:
    """Return whether a launch had planned a batch that the results lack.

    What is planned stands in the scratch directory of the launch. Where state is in an object store, that is on the host of the driver
    that is gone: then nobody knows, and the answer is yes. A no would start a query that kills its driver again at once, on every host
    in turn.

    Args:
        connection: to the database.
        checkpoints_dir: of this host.
        query_id: whose launch.
        checkpoint_id: its state.
        epoch: the launch.
    """
    run = run_of(checkpoint_directory(checkpoints_dir, query_id, checkpoint_id), epoch)
    if run is None:
        return True
    if (planned := planned_batch(run)) is None:
        return False
    committed = load_committed_state(connection, query_id, checkpoint_id).batch_id
    return committed is None or planned > committed

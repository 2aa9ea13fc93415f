"""A cluster whose workers share no directory, and an object store that is slow, fails and loses connections, at the same time, under kills.

Workers on other hosts have the cache's path on disks of their own. On this machine the path leads through ``/proc/self/cwd``, which is another
directory for each executor, and another one for the driver: whoever wants a segment that somebody else has written has to ask the store. An
executor, a worker with all that it started (its host), and the driver are killed while queries of several stages work, and the store is away
once. What comes out is what an undisturbed run by the engine alone gives. Takes two to five minutes.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from slackwater import Client

from tests.faults.service import seeded, service, until
from tests.faults.stages import NAMES, Request, requests
from tests.object_store import BUCKET, ObjectServer, Trouble, object_server
from tests.spark.cluster import Cluster, cluster
from tests.spark.test_cluster import QUIET_S, differences, epochs, newest, runs, settings, start

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1_200)]

OWN_DIRECTORY = "/proc/self/cwd/copies"
ANEW_S = 1.0
AWAY_S = 8.0


@contextmanager
def troubled(store: ObjectServer, chance: random.Random) -> Iterator[None]:
    """Let the store be slow for the length of a block, and fail and cut some requests of each second."""
    is_over = threading.Event()

    def go_on() -> None:
        while not is_over.wait(ANEW_S):
            if not store.trouble.is_away:
                delay_s, some = chance.uniform(0, 0.1), chance.randrange
                store.trouble = Trouble(delay_s, failures=some(4), cut_answers=some(3), cut_requests=some(3))

    thread = threading.Thread(target=go_on, name="trouble", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        store.trouble = Trouble()


class Doled:
    """Requests that are sent as far as they are let, so that some come behind each kill."""

    def __init__(self, sent: Sequence[Request]) -> None:
        self._sent, self._most = sent, 0
        self._more = threading.Condition()

    def let(self, share: float) -> None:
        with self._more:
            self._most = round(len(self._sent) * share)
            self._more.notify_all()

    def __iter__(self) -> Iterator[Request]:
        for number, each in enumerate(self._sent):
            with self._more:
                self._more.wait_for(lambda: number < self._most)  # noqa: B023 - waited for here
            yield each


def copies(standalone: Cluster) -> set[Path]:
    """Return the executors' directories that have copies of segments."""
    return {path for path in standalone.directory.glob("work/*/*/copies") if any(path.rglob("*.arrow"))}


def test_queries_are_exact_on_hosts_without_a_common_directory_before_a_bad_store_while_all_that_works_is_killed(
    tmp_path: Path,
) -> None:
    seed = seeded()
    sent = requests(random.Random(seed))
    (tmp_path / "cluster").mkdir()
    with object_server() as store, cluster(tmp_path / "cluster", store.environment) as standalone:
        own = {"SLACKWATER_STATE_URL": f"s3://{BUCKET}/state", "SLACKWATER_STATE_CACHE_DIR": OWN_DIRECTORY, **store.environment}
        given = {name: value for name, value in settings(standalone, tmp_path).items() if name != "SLACKWATER_CHECKPOINT_URL"}
        with service({**given, **own}) as running, Client(running.url, timeout=30) as client:
            doled = Doled(sent)
            feeder = start(running, client, doled)
            with troubled(store, random.Random(seed + 1)):

                def shrink_to_retry(kill: Callable[[], object], share: float) -> None:
                    doled.let(share)
                    until(f"{share:.0%} was sent", lambda: feeder.acknowledged >= len(sent) * (share - 0.1), QUIET_S)
                    before = newest(client)
                    kill()
                    doled.let(share + 0.1)
                    until(
                        "every query committed again", lambda: all(newest(client)[name] > before[name] for name in NAMES), QUIET_S
                    )

                shrink_to_retry(standalone.kill_executor, 0.2)
                shrink_to_retry(lambda: standalone.kill_host(1), 0.4)
                standalone.start_host(1)
                above = epochs(client)
                shrink_to_retry(running.kill_driver, 0.6)
                until("all queries were launched again", partial(runs, client, above), QUIET_S)
                store.trouble = Trouble(is_away=True)
                doled.let(1)
                threading.Timer(AWAY_S, lambda: setattr(store, "trouble", Trouble())).start()
                assert differences(client, feeder, sent) == {}
            assert len(copies(standalone)) > 2, "each executor had copies of its own"
            files = {path.name for path in (running.data_dir / "checkpoints").rglob("*") if path.is_file()}
            assert files <= {"root.json", "database.json", "planned"}
            assert any(path.endswith(".arrow") for method, path in store.requests if method == "GET"), "somebody else's segments"
    assert not list(tmp_path.glob("shared/**/*.arrow"))

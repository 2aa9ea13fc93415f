"""Digests of plans stay as they are: a query whose digest changes loses its state at the next start."""

from __future__ import annotations

import pytest

from engine.definition.queries import QueryDefinition
from engine.plan.build import build_plan, state_fingerprint
from engine.plan.model import folded
from tests.stored.kinds import CATALOG, KINDS, definition

_BY_KEY = {"name": "q", "from": {"stream": "s"}, "group_by": ["k"], "aggregate": {"n": "count(*)"}, "into": {"table": "out"}}
_JOINED = {"name": "q", "from": {"stream": "s"}, "select": {"k": "s.k", "x": "j.x"}, "into": {"stream": "out"}}
_HELD = {"until": "caught_up", "at_most": "1h", "max_rows": 7}
_DIVERTED = {"grace": "1h", "late": "divert", "expired": "drop", "hold": _HELD}
_NEAR = {"before": "1h", "after": "1m"}
_BUFFER = {"max_rows": 5, "max_bytes": 70, "when_full": "emit_early"}
_WALL = {"mode": "until_wall_clock_time_limit", "limit": "5m"}
MORE = {
    "join_diverts_and_holds": {**_JOINED, "joins": [{"table": "v", "as": "j", "on": "s.k = j.k", "type": "left", **_DIVERTED}]},
    "eager_outer_join": {
        **_JOINED, "joins": [{"stream": "r", "as": "j", "on": "s.k = j.k", "type": "outer", "within": {**_NEAR, "unmatched": "eager"}}],
    },
    "right_by_expressions": {
        **_JOINED, "joins": [{"stream": "r", "as": "j", "on": "upper(s.k) = lower(j.k)", "type": "right", "within": _NEAR}],
    },
    "appended": {"name": "q", "from": {"stream": "s"}, "into": {"stream": "out", "append_to": "r"}},
    "computed_key": {**_JOINED, "joins": [{"table": "v", "as": "j", "on": "upper(s.g) = j.k"}], "tasks": 3},
    "tables_right": {
        "name": "q", "from": {"table": "v"}, "joins": [{"table": "w", "as": "j", "on": "v.k = j.k", "type": "right"}],
        "select": {"k": "j.k", "x": "v.x"}, "into": {"table": "out"},
    },
    "foreign_key_inner_of_a_filtered_table": {
        "name": "q", "from": {"table": "v", "where": "n > 1"}, "joins": [{"table": "e", "as": "j", "on": "lower(v.g) = j.g"}],
        "select": {"k": "v.k", "n": "j.n"}, "into": {"table": "out"},
    },
    "having_and_idle": {**_BY_KEY, "having": "n > 1", "window": {"type": "tumbling", "size": "1h"}, "idle": {"after": "5m"}},
    "held_in_bounds": {**_BY_KEY, "suppress": {"mode": "until_time_limit", "limit": "5m", "buffer": _BUFFER}},
    "held_by_wall_clock": {**_BY_KEY, "suppress": {**_WALL, "event_driven": True, "buffer": {**_BUFFER, "when_full": "stop"}}},
    "windows_held_by_wall_clock": {**_BY_KEY, "window": {"type": "session", "gap": "1h"}, "suppress": _WALL},
    "top_of_all": {**_BY_KEY, "group_by": [], "window": {"type": "hopping", "size": "1h", "advance": "5m"}, "aggregate": {"t": "top_k(x, 3)"}},
    "versioned_copy": {"name": "q", "from": {"table": "v"}, "into": {"table": "out", "versioned": {"history_retention": "1d"}}},
    "from_an_instant": {
        "name": "q", "from": {"stream": "s", "where": "n > 1"}, "into": {"stream": "out"}, "start": {"at": "2013-01-01T00:00:00Z"},
    },
}  # fmt: skip
DEFINITIONS = {**{kind: definition(kind) for kind in KINDS}, **MORE}
DIGESTS = {
    "filtered_stream": "dd45a6282c50f8de",
    "timed_by_a_column": "a46bf80fa3145534",
    "exploded": "33b4b65841677afb",
    "joined_at_once": "64f0cb620cb01319",
    "grace": "5d59231500b9118b",
    "hold": "7ce9ad3bc3317f08",
    "two_joins": "48c386a97582e546",
    "joined_windows": "b183c6432ed37db1",
    "streams_inner": "857345def47da56a",
    "streams_left": "96142865d86e0d61",
    "streams_outer": "05512a2c9500c292",
    "filtered_table": "1f35b250b34ae0ef",
    "filtered_unversioned": "605fa7eb2504007f",
    "tables_inner": "e539981fbfa277d6",
    "tables_outer": "207ebe8c4cb51884",
    "tables_complete": "eea2827a0a035676",
    "foreign_key": "e2c22dd8e280b48f",
    "running": "4ff29a5266736611",
    "running_lists": "8df8246d3841ed09",
    "table_aggregate": "5c7fefc4aa5293a8",
    "versioned_aggregate": "4ded788fcfd83826",
    "tumbling_final": "6063f7e0f69ff656",
    "tumbling_changes": "2cc9ffe35bf28436",
    "tumbling_corrected": "3a0f5677bcc9b10b",
    "tumbling_open": "015356c905c61f41",
    "hopping_final": "257c5c86ff0f0d42",
    "hopping_changes": "462912252cdc296b",
    "session_final": "8794a107d61cd454",
    "session_changes": "7b76e6c5306bc681",
    "session_corrected": "61b99635e14f0ae7",
    "sliding_final": "d25b07965f09d8a4",
    "sliding_changes": "b0205f2e526c784d",
    "sliding_corrected": "ff6cb56f98b2fd0c",
    "time_limit": "50cef937b57e7096",
    "time_limit_windows": "663be962ea7aa2b5",
    "wall_clock": "43cd31e4f3fcd839",
    "idle": "e730ac317dba38a9",
    "join_diverts_and_holds": "cc2464bb6651dbac",
    "eager_outer_join": "db0c0fe11919d6ee",
    "right_by_expressions": "8daba17235efb182",
    "appended": "8e63ddbd521ef842",
    "computed_key": "8caaef29f8e477fb",
    "tables_right": "924f4ca93deeaa81",
    "foreign_key_inner_of_a_filtered_table": "9299bccb2ea9168f",
    "having_and_idle": "18d3ea5d26fef2f6",
    "held_in_bounds": "a01393a2839716ee",
    "held_by_wall_clock": "2cd6a154551279b4",
    "windows_held_by_wall_clock": "d0891f65ed967da5",
    "top_of_all": "63c82c14cad4793c",
    "versioned_copy": "dde3a53fadd1df65",
    "from_an_instant": "1447621c9a28302c",
}


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_digests_of_plans_are_those_of_earlier_versions(kind: str) -> None:
    plan = build_plan(QueryDefinition.model_validate(DEFINITIONS[kind]), CATALOG)
    assert state_fingerprint(plan)[:16] == state_fingerprint(folded(plan))[:16] == DIGESTS[kind]

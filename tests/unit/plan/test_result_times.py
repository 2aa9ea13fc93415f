"""Results whose event time is in a column of theirs."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from app.testing.machines.workbench import Workbench
from engine.definition.queries import QueryDefinition
from engine.definition.relations import StreamDefinition, TableDefinition
from engine.errors import DefinitionInvalid

_COLUMNS = {"k": "string", "ms": "bigint", "at": "timestamp", "text": "string", "n": "int"}
_SELECT = {name: name for name in _COLUMNS}


def _bench() -> Workbench:
    return Workbench(
        {
            "s": StreamDefinition(key=("k",), columns=_COLUMNS, max_future_skew=None),
            "u": TableDefinition(key=("k",), columns=_COLUMNS, max_future_skew=None),
        }
    )


def _query(**fields: Any) -> QueryDefinition:
    return QueryDefinition.model_validate({"name": "q", "tasks": 1, "from": {"stream": "s"}, "select": _SELECT, **fields})


def _record(ts: int, op: int = 0, **values: Any) -> pl.DataFrame:
    schema = {"_ts": pl.Int64(), "_op": pl.Int8(), **StreamDefinition(key=("k",), columns=_COLUMNS).schema_.polars()}
    return pl.DataFrame([{"_ts": ts, "_op": op, "k": "a", **values}], schema=schema)


@pytest.mark.parametrize(
    ("into", "values", "wanted"),
    [
        ({"event_time": "ms"}, {"ms": 70}, [70]),
        ({"event_time": "at"}, {"at": pl.Series([70], dtype=pl.Int64).cast(pl.Datetime("ms", "UTC")).item()}, [70]),
        ({"event_time": "text"}, {"text": "1970-01-01T00:00:00.070Z"}, [70]),
        ({"event_time": "text", "event_time_format": "%d.%m.%Y"}, {"text": "02.01.1970"}, [86_400_000]),
        ({"event_time": "ms"}, {"ms": None}, []),
        ({"event_time": "ms"}, {"ms": -1}, []),
        ({"event_time": "text"}, {"text": "soon"}, []),
        ({"event_time": "text", "event_time_format": "%Y"}, {"text": "soon"}, []),
    ],
)
def test_a_row_has_the_time_that_its_column_holds(into: dict[str, str], values: dict[str, Any], wanted: list[int]) -> None:
    bench = _bench()
    bench.add(_query(into={"stream": "out", **into}))
    found = bench.process({"s": _record(5, **values)})
    assert (found["q"]["_ts"].to_list() if found else []) == wanted
    assert bench.outcome("q").counters.get(("into", "result_time_missing"), 0) == 1 - len(wanted)


def test_a_delete_keeps_the_time_of_what_made_it() -> None:
    bench = _bench()
    bench.add(_query(**{"from": {"table": "u"}}, into={"table": "out", "event_time": "ms"}))
    found = bench.process({"u": pl.concat([_record(5, ms=70), _record(6, op=1)])})
    assert found["q"]["_ts"].to_list() == [70, 6]


def test_a_later_query_reads_the_new_times() -> None:
    bench = _bench()
    bench.add(_query(into={"stream": "out", "event_time": "ms"}))
    later = {"name": "later", "tasks": 1, "from": {"stream": "out"}, "group_by": ["k"], "aggregate": {"rows": "count(*)"}}
    bench.add(
        QueryDefinition.model_validate({**later, "window": {"type": "tumbling", "size": "1m"}, "into": {"table": "counts"}})
    )
    found = bench.process({"s": pl.concat([_record(5, ms=70_000), _record(6, ms=130_000)])})
    assert found["later"]["window_start"].dt.epoch("ms").to_list() == [60_000, 120_000]


@pytest.mark.parametrize(
    ("into", "pointer", "code"),
    [
        ({"stream": "out", "event_time": "nothing"}, "/into/event_time", "unknown_column"),
        ({"stream": "out", "event_time": "n"}, "/into/event_time", "type_mismatch"),
        ({"stream": "out", "event_time_format": "%Y"}, "/into/event_time_format", "unsupported_option"),
        ({"stream": "out", "event_time": "ms", "event_time_format": "%Y"}, "/into/event_time_format", "unsupported_option"),
        (
            {"table": "out", "event_time": "ms", "versioned": {"history_retention": "1d"}},
            "/into/event_time",
            "unsupported_option",
        ),
    ],
)
def test_what_gives_no_event_times_is_refused(into: dict[str, Any], pointer: str, code: str) -> None:
    source = {"from": {"table": "u"}} if "table" in into else {}
    with pytest.raises(DefinitionInvalid) as refused:
        _bench().add(_query(**source, into=into))
    assert (pointer, code) in [(problem.pointer, problem.code) for problem in refused.value.problems]

"""Random queries of up to three operators that wait, judge or make several rows, over the small catalog of ``tests.stored.kinds``."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Json = dict[str, Any]

_FINAL, _CORRECTED = {"mode": "until_window_closes"}, {"mode": "window_end_then_corrections"}


def _minutes(draw: st.DrawFn, *minutes: int) -> str:
    return f"{draw(st.sampled_from(minutes))}m"


def _stream_join(draw: st.DrawFn, alias: str, grace: str | None) -> Json:
    """A join of the stream ``s``: with a table as of the record's time, at once, or with another stream."""
    own = draw(st.sampled_from(["k", "g"]))
    kind = draw(st.sampled_from(["grace", "grace", "at_once", "within"]))
    if kind == "at_once":
        table = draw(st.sampled_from({"k": ["u", "v"], "g": ["d", "e"]}[own]))
        return {"table": table, "as": alias, "on": f"s.{own} = {alias}.{own}", "type": "left"}
    if kind == "grace":
        late = {"late": draw(st.sampled_from(["join", "drop", "divert"]))} if grace is None else {"late": "divert"}
        join = {"table": {"k": "v", "g": "d"}[own], "as": alias, "on": f"s.{own} = {alias}.{own}", **late}
        return join | {"type": draw(st.sampled_from(["inner", "left"])), "grace": grace or _minutes(draw, 0, 4, 10)}
    within = {"before": _minutes(draw, 0, 5), "after": _minutes(draw, 0, 8), "grace": grace or _minutes(draw, 0, 3)}
    join = {"stream": "r", "as": alias, "on": f"s.{own} = {alias}.{own}", "within": within}
    return join | {"type": draw(st.sampled_from(["inner", "left", "outer"]))}


def _window(draw: st.DrawFn, grace: str | None) -> Json:
    shapes: list[Json] = [
        {"type": "tumbling", "size": "5m"}, {"type": "hopping", "size": "6m", "advance": "4m"}, {"type": "session", "gap": "3m"},
        {"type": "sliding", "difference": "4m"},
    ]  # fmt: skip
    return {**draw(st.sampled_from(shapes)), "grace": grace or _minutes(draw, 0, 0, 2)}


@st.composite
def stream_chains(draw: st.DrawFn, grace: str | None = None) -> Json:
    """A stream through up to three operators, each by its own key.

    Args:
        draw: of Hypothesis.
        grace: of every operator that has one; None: any.
    """
    joins = [_stream_join(draw, alias, grace) for alias in ("i", "j")[: draw(st.integers(0, 2))]]
    if sum("stream" in join for join in joins) > 1:
        joins = joins[:1]
    columns = ["s.k", "s.g", *(f"{join['as']}.n" for join in joins)]
    body: Json = {"from": {"stream": "s"}, "joins": joins}
    if draw(st.booleans()):
        body["where"] = draw(st.sampled_from(["s.n > 0", "s.x > 0.5", "coalesce(s.k, 'a') <> 'b'"]))
    if draw(st.integers(0, 3)) == 0:
        letters = "explode(split(concat(coalesce(s.g, 'Z'), ',', coalesce(s.k, 'q')), ','))"
        return body | {"select": {"k": "s.k", "letter": letters, "n": columns[-1]}, "into": {"stream": "out"}}
    body |= {"aggregate": {"rows": "count(*)", "all": "collect_list(s.k)", "last_n": "last(s.n)"}, "into": {"table": "out"}}
    body["group_by"] = [draw(st.sampled_from(columns))]
    modes: list[Json] = [{"mode": "none"}, {"mode": "until_time_limit", "limit": _minutes(draw, 0, 3, 7)}]
    if draw(st.integers(0, 3)):
        body["window"] = _window(draw, grace)
        modes += [_FINAL, _FINAL, _CORRECTED]
    return body | {"suppress": draw(st.sampled_from(modes))}


@st.composite
def table_chains(draw: st.DrawFn) -> Json:
    """A table through up to three operators: filters, joins by its key and by a foreign key, an aggregation of which a row makes two changes."""
    source = draw(st.sampled_from(["u", "v"]))
    joins: list[Json] = []
    if draw(st.booleans()):
        joins.append({"table": "w", "as": "i", "on": f"{source}.k = i.k", "type": draw(st.sampled_from(["inner", "left"]))})
    if draw(st.booleans()):
        other = draw(st.sampled_from(["d", "e"]))
        joins.append({"table": other, "as": "j", "on": f"{source}.g = j.g", "type": draw(st.sampled_from(["inner", "left"]))})
    columns = [f"{source}.g", f"{source}.n", *(f"{join['as']}.n" for join in joins)]
    body: Json = {"from": {"table": source}, "joins": joins, "into": {"table": "out"}}
    if draw(st.booleans()):
        body["where"] = f"{source}.n > 0"
    if draw(st.integers(0, 3)) == 0:
        return body | {"select": {"k": f"{source}.k", "n": columns[-1]}}
    body |= {"group_by": [draw(st.sampled_from(columns))], "aggregate": {"rows": "count(*)", "total": f"sum({source}.n)"}}
    modes: list[Json] = [{"mode": "none"}, {"mode": "until_time_limit", "limit": _minutes(draw, 0, 3, 7)}]
    return body | draw(st.sampled_from([{}, {"having": "rows > 0"}])) | {"suppress": draw(st.sampled_from(modes))}

"""The aggregates a group may have. One entry says everything of one but how it is computed (``engine.operators.aggregation.aggregate``).

Those that begin with ``ksql_`` are as ksqlDB has them; where nothing is said of a difference, both mean the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.expressions.aggregates.aggregate_entries import (
    Aggregate,
    AggregateExample,
    by_extreme,
    distinct_count,
    distinct_list,
    extreme,
    frequencies,
    greatest,
    listed,
    moment,
    one_or_listed,
    same,
    same_number,
    same_number_of_lists,
    text,
    total,
    total_of_lists,
    whole_number,
)
from engine.expressions.limits import MAX_COLLECTED_VALUES, MAX_DISTINCT_VALUES

MAX_TOP_K: Final = 100
"""Every change of a group repeats its k values: more than this is a list, not a top."""

_FULL: Final = f"the first {MAX_COLLECTED_VALUES:,}, or 1 MiB."
_TOO_MANY: Final = f"NULL from {MAX_DISTINCT_VALUES:,} values or 64 MiB in a group of a stream on."
_NUMBERS, _ORDER, _ANY = "x: number", "x: any that has an order", "x: any"
_UP_TO_N: Final = "n: whole number that may be left out"
LIST: Final[Sequence[Aggregate]] = (
    Aggregate(
        "count", "*, or x: any", "bigint", "How many rows; of `count(x)` those in which x is not NULL.", whole_number,
        AggregateExample("count(*)", (1, 2, None), 3), is_undoable=True, written="count(*), count(x)", takes_rows=True,
        of_distinct="count_distinct", ksqldb=("COUNT",),
    ),
    Aggregate(
        "count_distinct", "distinct x: any but maps", "bigint", f"How many different values; written count(distinct x). {_TOO_MANY}",
        distinct_count, AggregateExample("count(distinct x)", (1, 2, 2), 2), is_undoable=True,
        written="count(distinct x), count_distinct(x)", ksqldb=("COUNT_DISTINCT",), is_nested_in_ksqldb=True,
    ),
    Aggregate(
        "sum", _NUMBERS, "bigint; of doubles double, of decimals decimal(38,s)", "The sum; of doubles without error of rounding.", total,
        AggregateExample("sum(x)", (1, 2, None), 3), is_undoable=True,
    ),
    Aggregate(
        "sum_list", "x: array of numbers", "bigint; of doubles double, of decimals decimal(38,s)", "The sum of all elements.",
        total_of_lists, AggregateExample("sum_list(x)", ([1, 2], [3, None], None), 6, "array<int>"), is_undoable=True,
    ),
    Aggregate("avg", _NUMBERS, "double", "The mean.", moment, AggregateExample("avg(x)", (1, 2), 1.5), is_undoable=True),
    Aggregate("min", _ORDER, "type of x", "The smallest value.", extreme, AggregateExample("min(x)", (3, 1, 2), 1), ksqldb=("MIN",)),
    Aggregate("max", _ORDER, "type of x", "The greatest value.", extreme, AggregateExample("max(x)", (3, 1, 2), 3), ksqldb=("MAX",)),
    Aggregate(
        "min_by", "x: any, y: any that has an order", "type of x", "x of the record with the smallest y, of several the one that came first.",
        by_extreme, AggregateExample("min_by(x, -x)", (3, 1, 2), 3), written="min_by(x, y)", values=2, ksqldb=("MIN_BY",),
    ),
    Aggregate(
        "max_by", "x: any, y: any that has an order", "type of x", "x of the record with the greatest y, of several the one that came first.",
        by_extreme, AggregateExample("max_by(x, -x)", (3, 1, 2), 1), written="max_by(x, y)", values=2, ksqldb=("MAX_BY",),
    ),
    Aggregate(
        "stddev", _NUMBERS, "double", "The standard deviation of a sample; NULL of one value.", moment,
        AggregateExample("stddev(x)", (1, 3, 5), 2.0), is_undoable=True, aliases=("stddev_samp",), ksqldb=("STDDEV",),
    ),
    Aggregate(
        "variance", _NUMBERS, "double", "The variance of a sample; NULL of one value.", moment,
        AggregateExample("variance(x)", (1, 3, 5), 4.0), is_undoable=True, aliases=("var_samp",), ksqldb=("VARIANCE", "VAR_SAMP"),
    ),
    Aggregate(
        "correlation", "x: number, y: number", "double",
        "Pearson's correlation of two columns, of the records in which neither is NULL; NULL where one of them does not vary.", moment,
        AggregateExample("correlation(x, -x)", (1, 3, 5), -1.0), is_undoable=True, aliases=("corr",), written="correlation(x, y)", values=2,
    ),
    Aggregate(
        "median", _NUMBERS, "double", f"The value in the middle, of two the mean. {_TOO_MANY}", moment,
        AggregateExample("median(x)", (3, 1, 2, 9), 2.5), is_undoable=True, ksqldb=("MEDIAN",),
    ),
    Aggregate(
        "percentile", "x: number, p: number from 0 to 1", "double",
        f"The value below which the part p of the values lies, between two values in proportion; p is written out. {_TOO_MANY}", moment,
        AggregateExample("percentile(x, 0.25)", (1, 2, 3, 5), 1.75), is_undoable=True, written="percentile(x, p)", takes_fraction=True,
        ksqldb=("PERCENTILE",),
    ),
    Aggregate(
        "approx_percentile", "x: number, p: number from 0 to 1", "double",
        "A value within 0.8 % of one that `percentile` looks at; keeps at most 262,000 counts, whatever the values are.", moment,
        AggregateExample("approx_percentile(x, 0.5)", (1, 2, 3), 2.015625), is_undoable=True, written="approx_percentile(x, p)",
        takes_fraction=True, ksqldb=("APPROX_PERCENTILE",),
    ),
    Aggregate(
        "first", _ANY, "type of x", "The value with the earliest event time.", same, AggregateExample("first(x)", (3, 1, 2), 3),
        ksqldb=("FIRST",),
    ),
    Aggregate(
        "last", _ANY, "type of x", "The value with the latest event time.", same, AggregateExample("last(x)", (3, 1, 2), 2),
        ksqldb=("LAST",),
    ),
    Aggregate(
        "first_by_arrival", f"{_ANY}, {_UP_TO_N}, ignore_nulls: TRUE unless written", "type of x, or array of it",
        "The value that came first, or the n that did.", one_or_listed, AggregateExample("first_by_arrival(x)", (3, 1, 2), 3),
        aliases=("earliest_by_offset",), written="first_by_arrival(x[, n][, ignore_nulls])", largest_k=MAX_COLLECTED_VALUES,
        takes_ignore_nulls=True,
    ),
    Aggregate(
        "last_by_arrival", f"{_ANY}, {_UP_TO_N}, ignore_nulls: TRUE unless written", "type of x, or array of it",
        "The value that came last, or the n that did, in the order in which they came.", one_or_listed,
        AggregateExample("last_by_arrival(x)", (3, 1, 2), 2), aliases=("latest_by_offset",),
        written="last_by_arrival(x[, n][, ignore_nulls])", largest_k=MAX_COLLECTED_VALUES, takes_ignore_nulls=True,
    ),
    Aggregate(
        "attr", _ANY, "type of x", "The value that all records have, NULL among them; NULL where they have several.", same,
        AggregateExample("attr(x)", (3, 3), 3), is_undoable=True, ksqldb=("ATTR",), is_nested_in_ksqldb=True,
    ),
    Aggregate(
        "collect_list", f"{_ANY}, {_UP_TO_N}", "array of the type of x",
        f"All values in the order of arrival; {_FULL} n makes that fewer.", listed,
        AggregateExample("collect_list(x)", (3, 1, 3), [3, 1, 3]), is_undoable=True, is_growing=True, written="collect_list(x[, n])",
        largest_k=MAX_COLLECTED_VALUES,
    ),
    Aggregate(
        "collect_set", f"x: any but maps, {_UP_TO_N}", "array of the type of x",
        f"Every different value once, in the order of arrival; {_FULL} n makes that fewer.", distinct_list,
        AggregateExample("collect_set(x)", (3, 1, 3), [3, 1]), is_growing=True, written="collect_set(x[, n])", largest_k=MAX_COLLECTED_VALUES,
    ),
    Aggregate(
        "top_k", "x: any that has an order, y: any, which may be left out, k: whole number", "array of the type of x, or of structs",
        f"The k greatest values, the greatest first, of at most 1 MiB; k is written out, 1 to {MAX_TOP_K}. With y, and more of them, "
        "structs of sort_col, col0, col1 and so on; of equal x the one that came first.", greatest,
        AggregateExample("top_k(x, 2)", (3, 1, 2), [3, 2]), aliases=("topk",), written="top_k(x[, y …], k)", largest_k=MAX_TOP_K, needs_k=True,
        takes_further=True,
    ),
    Aggregate(
        "top_k_distinct", "x: any that has an order, k: whole number", "array of the type of x",
        f"The k greatest different values, the greatest first, of at most 1 MiB; k is written out, 1 to {MAX_TOP_K}.", greatest,
        AggregateExample("top_k_distinct(x, 2)", (3, 3, 2), [3, 2]), aliases=("topkdistinct",), written="top_k_distinct(x, k)",
        largest_k=MAX_TOP_K, needs_k=True,
    ),
    Aggregate(
        "histogram", "x: any but nested and bytes", "map<string,bigint>",
        f"How often each value occurs, by its text; of more than {MAX_COLLECTED_VALUES:,} texts or 1 MiB the first in their order.",
        frequencies, AggregateExample("histogram(x)", (1, 2, 2), {"1": 1, "2": 2}), is_undoable=True, is_growing=True, is_of_text=True,
    ),
    Aggregate(
        "ksql_sum", _NUMBERS, "type of x", "As `sum`, but in the type of x, and 0 of nothing.", same_number,
        AggregateExample("ksql_sum(x)", (None,), 0), is_undoable=True, ksqldb=("SUM",),
    ),
    Aggregate(
        "ksql_sum_list", "x: array of numbers", "type of the elements", "As `sum_list`, but in the type of the elements, and 0 of nothing.",
        same_number_of_lists, AggregateExample("ksql_sum_list(x)", ([], None), 0, "array<int>"), is_undoable=True, ksqldb=("SUM_LIST",),
    ),
    Aggregate(
        "ksql_avg", _NUMBERS, "double", "As `avg`, but 0.0 of nothing.", moment, AggregateExample("ksql_avg(x)", (None,), 0.0),
        is_undoable=True, ksqldb=("AVG",), is_nested_in_ksqldb=True,
    ),
    Aggregate(
        "ksql_stddev_samp", _NUMBERS, "double", "As `variance`, but 0.0 of one value and of nothing.", moment,
        AggregateExample("ksql_stddev_samp(x)", (1, 3, 5), 4.0), is_undoable=True, ksqldb=("STDDEV_SAMP",), is_nested_in_ksqldb=True,
    ),
    Aggregate(
        "ksql_stddev_sample", _NUMBERS, "double", "As `stddev`, but 0.0 of one value and of nothing.", moment,
        AggregateExample("ksql_stddev_sample(x)", (1,), 0.0), is_undoable=True, ksqldb=("STDDEV_SAMPLE",), is_nested_in_ksqldb=True,
    ),
    Aggregate(
        "ksql_correlation", "x: number, y: number", "double", "As `correlation`, but NaN where one of the columns does not vary.", moment,
        AggregateExample("ksql_correlation(x, x)", (1, 3, 5), 1.0), is_undoable=True, written="ksql_correlation(x, y)", values=2,
        ksqldb=("CORRELATION",), is_nested_in_ksqldb=True,
    ),
    Aggregate(
        "ksql_collect_list", f"{_ANY}, {_UP_TO_N}", "array of the type of x", "As `collect_list`, but with NULLs, and empty of nothing.", listed,
        AggregateExample("ksql_collect_list(x)", (3, None), [3, None]), is_undoable=True, is_growing=True,
        written="ksql_collect_list(x[, n])", largest_k=MAX_COLLECTED_VALUES, ksqldb=("COLLECT_LIST",), is_nested_in_ksqldb=True,
    ),
    Aggregate(
        "ksql_collect_set", f"{_ANY}, {_UP_TO_N}", "array of the type of x", "As `collect_set`, but with NULL, and of nested values, too.",
        listed, AggregateExample("ksql_collect_set(x)", (3, None, None), [3, None]), is_growing=True, written="ksql_collect_set(x[, n])",
        largest_k=MAX_COLLECTED_VALUES, ksqldb=("COLLECT_SET",), is_nested_in_ksqldb=True,
    ),
    Aggregate(
        "ksql_topk", "x: any that has an order, y: any, which may be left out, k: whole number", "array of the type of x, or of structs",
        "As `top_k`, but empty of nothing.", greatest, AggregateExample("ksql_topk(x, 2)", (None,), []), written="ksql_topk(x[, y …], k)",
        largest_k=MAX_TOP_K, needs_k=True, takes_further=True, ksqldb=("TOPK",), is_nested_in_ksqldb=True,
    ),
    Aggregate(
        "ksql_topkdistinct", "x: any that has an order, k: whole number", "array of the type of x", "As `top_k_distinct`, but empty of nothing.",
        greatest, AggregateExample("ksql_topkdistinct(x, 2)", (None,), []), written="ksql_topkdistinct(x, k)", largest_k=MAX_TOP_K,
        needs_k=True, ksqldb=("TOPKDISTINCT",), is_nested_in_ksqldb=True,
    ),
    Aggregate(
        "ksql_earliest_by_offset", f"{_ANY}, {_UP_TO_N}, ignore_nulls: TRUE unless written", "type of x, or array of it",
        "As `first_by_arrival`, but n values of nothing are an empty array.", one_or_listed,
        AggregateExample("ksql_earliest_by_offset(x, 2)", (None,), []), written="ksql_earliest_by_offset(x[, n][, ignore_nulls])",
        largest_k=MAX_COLLECTED_VALUES, takes_ignore_nulls=True, ksqldb=("EARLIEST_BY_OFFSET",), is_nested_in_ksqldb=True,
    ),
    Aggregate(
        "ksql_latest_by_offset", f"{_ANY}, {_UP_TO_N}, ignore_nulls: TRUE unless written", "type of x, or array of it",
        "As `last_by_arrival`, but n values of nothing are an empty array.", one_or_listed,
        AggregateExample("ksql_latest_by_offset(x, 2, FALSE)", (3, 1, None), [1, None]),
        written="ksql_latest_by_offset(x[, n][, ignore_nulls])", largest_k=MAX_COLLECTED_VALUES, takes_ignore_nulls=True,
        ksqldb=("LATEST_BY_OFFSET",), is_nested_in_ksqldb=True,
    ),
    Aggregate(
        "ksql_histogram", "x: any but nested and bytes", "map<string,bigint>", "As `histogram`, but empty of nothing.", frequencies,
        AggregateExample("ksql_histogram(x)", (None,), {}), is_undoable=True, is_growing=True, is_of_text=True, ksqldb=("HISTOGRAM",),
        is_nested_in_ksqldb=True,
    ),
)  # fmt: skip

FOR_CORPORA: Final[Sequence[Aggregate]] = (
    Aggregate(
        "concat", "x: string", "string", "The texts in the order of arrival.", text, AggregateExample("concat(x)", (1, 2), "12"),
        is_growing=True,
    ),
    Aggregate(
        "trace", "x: string", "string", "What was added and taken out again, in the order of arrival.", text,
        AggregateExample("trace(x)", (1, 2), "0+1+2"), is_undoable=True, is_growing=True,
    ),
)  # fmt: skip

"""CREATE ... AS SELECT: the definitions that queries become, and the results as later statements see them."""

from __future__ import annotations

import pytest

from engine.statements.context.faults import StatementRefused, StatementUnsupported
from engine.statements.context.session import KeyWindow
from tests.unit.statements.scripts import RIDES, bound, definition, query


def test_a_projection_keeps_names_and_makes_up_others() -> None:
    found = query("CREATE STREAM dear AS SELECT id, fare * 2, city AS town FROM rides WHERE fare > 10;")
    assert found.definition.dialect == "ksqldb"
    assert found.definition.select == {"ID": '"rides"."ID"', "KSQL_COL_0": '"rides"."FARE" * 2', "TOWN": '"rides"."CITY"'}
    assert found.definition.where == '"rides"."FARE" > 10'
    assert found.relation.key == ("ID",)
    assert found.relation.columns.names == ("ID", "KSQL_COL_0", "TOWN")


def test_a_group_takes_aggregates_out_of_expressions() -> None:
    found = definition("CREATE TABLE n AS SELECT city, COUNT(*) AS n, SUM(fare) / COUNT(*) AS mean FROM rides GROUP BY city;")
    assert found.group_by == ('"rides"."CITY"',)
    assert found.aggregate == {"N": "count(*)", "aggregate_2": 'sum("rides"."FARE")'}
    assert found.select == {"CITY": '"rides"."CITY"', "N": '"N"', "MEAN": '"aggregate_2" / "N"'}


def test_having_may_ask_for_another_aggregate() -> None:
    found = definition("CREATE TABLE n AS SELECT city, COUNT(*) AS n FROM rides GROUP BY city HAVING MAX(fare) > 3;")
    assert found.having == '"aggregate_2" > 3'
    assert found.aggregate["aggregate_2"] == 'max("rides"."FARE")'


def test_windows_give_their_bounds_to_the_key() -> None:
    found = query(
        "CREATE TABLE n AS SELECT city, COUNT(*) AS n, WINDOWSTART AS since FROM rides WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY city EMIT FINAL;"
    )
    window = found.definition.window
    assert window is not None
    assert (window.size, window.grace) == (3_600_000, 0)
    assert found.definition.suppress.mode == "until_window_closes"
    assert found.definition.select is not None
    assert list(found.definition.select) == ["CITY", "N", "SINCE", "window_start", "window_end"]
    assert found.relation.columns.names == ("CITY", "N", "SINCE")
    assert found.relation.window == KeyWindow("tumbling", 3_600_000)


def test_grace_is_a_day_less_the_window_as_in_ksqldb() -> None:
    found = definition("CREATE TABLE n AS SELECT city, COUNT(*) AS n FROM rides WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY city;")
    assert found.window is not None
    assert found.window.grace == 23 * 3_600_000


def test_a_table_joins_a_stream_under_its_alias() -> None:
    found = query("CREATE STREAM j AS SELECT r.id AS ride, c.name, c.land FROM rides r LEFT JOIN cities c ON r.city = c.name;")
    (join,) = found.definition.joins
    assert (join.table, join.alias, join.type, join.on) == ("cities", "c", "left", '"r"."CITY" = "c"."NAME"')
    assert found.relation.key == ("NAME",)
    assert found.definition.select == {"RIDE": '"r"."ID"', "NAME": '"r"."CITY"', "LAND": '"c"."LAND"'}
    assert found.definition.into.key == ("NAME",)


def test_streams_join_within_a_day_of_grace_and_show_the_unmatched_at_once() -> None:
    (join,) = definition("CREATE STREAM j AS SELECT * FROM rides r LEFT JOIN tips t WITHIN 1 HOUR ON r.id = t.id;").joins
    assert join.within is not None
    assert (join.within.before, join.within.grace, join.within.unmatched) == (3_600_000, 86_400_000, "eager")


def test_a_star_over_a_join_names_the_inputs() -> None:
    found = query("CREATE STREAM j AS SELECT * FROM rides r JOIN tips t WITHIN 1 HOUR GRACE PERIOD 5 MINUTES ON r.id = t.id;")
    assert found.relation.columns.names == ("R_ID", "R_CITY", "R_FARE", "R_METERS", "R_BEGAN", "T_ID", "T_TIP")


def test_what_no_column_shows_gets_a_key_of_its_own() -> None:
    found = query(
        "CREATE STREAM j AS SELECT ROWKEY, r.fare, t.tip FROM rides r FULL OUTER JOIN tips t WITHIN 1 HOUR ON r.id = t.id;"
    )
    assert found.relation.key == ("ROWKEY",)
    assert found.definition.select is not None
    assert found.definition.select["ROWKEY"] == 'coalesce("r"."ID", "t"."ID")'


def test_partition_by_gives_another_key() -> None:
    found = query("CREATE STREAM by_city AS SELECT * FROM rides PARTITION BY city;")
    assert found.relation.key == ("CITY",)
    assert found.definition.into.key == ("CITY",)


def test_rowtime_is_the_event_time_also_beside_a_text() -> None:
    found = definition("CREATE STREAM s AS SELECT id, rowtime AS moment FROM rides WHERE rowtime > '2013-01-01';")
    assert found.select is not None
    assert found.select["MOMENT"] == '"rides"."$event_time_ms"'


def test_a_query_reads_what_another_wrote() -> None:
    actions, _ = bound(
        RIDES
        + """CREATE TABLE n AS SELECT city, COUNT(*) AS n FROM rides GROUP BY city;
             CREATE TABLE few AS SELECT city, n FROM n WHERE n < 3;"""
    )
    assert len(actions) == 5


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("CREATE STREAM s AS SELECT id, far FROM rides;", "unknown_column"),
        ("CREATE STREAM s AS SELECT id, fare FROM ride;", "unknown_relation"),
        ("CREATE STREAM s AS SELECT fare FROM rides;", "key_missing_in_select"),
        ("CREATE STREAM s AS SELECT id FROM rides;", "columns_missing"),
        ("CREATE STREAM s AS SELECT id, id AS id2, fare FROM rides;", "duplicate_key"),
        ("CREATE STREAM s AS SELECT id, fare AS a, city AS a FROM rides;", "duplicate_column"),
        ("CREATE STREAM s AS SELECT id, fare AS rowtime FROM rides;", "reserved_column"),
        ("CREATE TABLE s AS SELECT id, fare FROM rides;", "wrong_kind"),
        ("CREATE STREAM s AS SELECT city, COUNT(*) AS n FROM rides GROUP BY city;", "wrong_kind"),
        ("CREATE TABLE s AS SELECT city, fare, COUNT(*) AS n FROM rides GROUP BY city;", "not_grouped"),
        ("CREATE TABLE s AS SELECT COUNT(*) AS n FROM rides GROUP BY city;", "key_missing_in_select"),
        ("CREATE TABLE s AS SELECT city, SUM(city) AS n FROM rides GROUP BY city;", "type_mismatch"),
        ("CREATE STREAM s AS SELECT id, fare FROM rides WHERE city;", "type_mismatch"),
        ("CREATE STREAM s AS SELECT id, fare FROM rides WINDOW TUMBLING (SIZE 1 HOUR);", "window_without_group"),
        ("CREATE STREAM s AS SELECT * FROM rides r JOIN tips t ON r.id = t.id;", "within_missing"),
        ("CREATE STREAM s AS SELECT * FROM rides r JOIN cities c ON r.city = c.land;", "join_key_mismatch"),
        ("CREATE STREAM s AS SELECT * FROM rides r JOIN tips t WITHIN 1 HOUR ON r.city = t.id;", "type_mismatch"),
        ("CREATE STREAM s AS SELECT id, fare FROM rides r JOIN tips t WITHIN 1 HOUR ON r.id = t.id;", "ambiguous_column"),
        ("CREATE TABLE s AS SELECT name, land FROM cities PARTITION BY land;", "partition_unfit"),
        ("CREATE TABLE s AS SELECT name, land FROM cities EMIT FINAL;", "emit_unfit"),
        ("CREATE STREAM s AS SELECT * FROM rides WHERE COUNT(*) > 1;", "aggregate_in_where"),
        ("CREATE STREAM s AS SELECT * FROM rides PARTITION BY COUNT(*);", "aggregate_in_partition"),
        ("CREATE TABLE s AS SELECT COUNT(*) AS n FROM rides GROUP BY COUNT(*);", "aggregate_in_group"),
        ("CREATE TABLE s AS SELECT id, SUM(COUNT(*)) AS n FROM rides GROUP BY id;", "nested_aggregate"),
        ("CREATE TABLE s AS SELECT id, COUNT(*) AS n FROM rides GROUP BY id, id;", "duplicate_group"),
        ("CREATE STREAM s AS SELECT * FROM rides HAVING fare > 1;", "having_without_group"),
        ("CREATE STREAM s AS SELECT TRANSFORM(ARRAY[1], city => 1) AS x FROM rides;", "lambda_malformed"),
        ("CREATE STREAM s AS SELECT TRANSFORM(ARRAY[1], x => TRANSFORM(ARRAY[1], x => 1)) AS y FROM rides;", "lambda_malformed"),
        ("CREATE STREAM s AS SELECT * FROM rides r JOIN cities c WITHIN 1 HOUR ON r.city = c.name;", "within_unfit"),
        ("CREATE STREAM s WITH (VALUE_FORMAT='JSON', VALUE_FORMAT='JSON') AS SELECT * FROM rides;", "duplicate_property"),
    ],
)
def test_a_wrong_query_is_refused_at_its_place(text: str, code: str) -> None:
    with pytest.raises(StatementRefused) as caught:
        definition(text)
    assert caught.value.code == code
    assert caught.value.span is not None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("CREATE STREAM s AS SELECT UCASE(city)->* FROM rides;", "fields_of_expression"),
        ("CREATE STREAM s AS SELECT * FROM rides LIMIT 3;", "limit_not_supported"),
        ("CREATE STREAM s AS SELECT * FROM rides FOR SYSTEM_TIME AS OF '2020-01-01';", "time_travel"),
        ("CREATE STREAM s AS SELECT id, ROWPARTITION AS p FROM rides;", "pseudo_column"),
    ],
)
def test_what_a_query_cannot_have_here_is_told_as_such(text: str, code: str) -> None:
    with pytest.raises(StatementUnsupported) as caught:
        definition(text)
    assert caught.value.code == code
    assert caught.value.span is not None


HOURLY = "CREATE TABLE hourly AS SELECT id, COUNT(*) AS n FROM rides WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY id;"


@pytest.mark.parametrize(
    ("before", "text", "code"),
    [
        (HOURLY, "CREATE TABLE s AS SELECT n, COUNT(*) AS m FROM hourly GROUP BY n;", "windowed_group"),
        (
            "CREATE STREAM t WITH (QUERY_ID='q') AS SELECT * FROM rides;",
            "CREATE STREAM s WITH (QUERY_ID='q') AS SELECT * FROM rides;",
            "query_exists",
        ),
    ],
)
def test_a_query_that_does_not_go_with_what_is_there_is_refused(before: str, text: str, code: str) -> None:
    with pytest.raises(StatementRefused) as caught:
        definition(text, RIDES + before)
    assert caught.value.code == code


def test_a_replaced_result_keeps_its_query() -> None:
    made = "CREATE STREAM dear WITH (QUERY_ID='dear_ones') AS SELECT id, fare FROM rides WHERE fare > 10;"
    anew = "CREATE OR REPLACE STREAM dear AS SELECT id, fare FROM rides WHERE fare > 20;"
    found = query(anew, RIDES + made)
    assert found.is_replace
    assert found.definition.name == "dear_ones"


def test_a_name_in_quotes_means_the_relation_that_has_its_letters_and_digits() -> None:
    before = "CREATE STREAM `My Rides` (id INT KEY, fare DOUBLE) WITH (KAFKA_TOPIC='my', VALUE_FORMAT='JSON');"
    for name in ("`My Rides`", "MY_RIDES", "`my-rides`"):
        assert definition(f"CREATE STREAM dear AS SELECT * FROM {name};", before).source.stream == "my_rides"
    with pytest.raises(StatementUnsupported) as refused:
        bound("CREATE STREAM my_rides (id INT KEY) WITH (KAFKA_TOPIC='other', VALUE_FORMAT='JSON');", bound(before)[1])
    assert refused.value.code == "name_not_supported"


@pytest.mark.parametrize(
    "call",
    ["shout(city)", "COUNT(*) + shout(fare)", "MAX(shout(fare))", "shout(MAX(fare))"],
)
def test_an_unknown_function_is_named_in_a_grouped_query_as_well(call: str) -> None:
    with pytest.raises(StatementRefused) as caught:
        query(f"CREATE TABLE n AS SELECT city, COUNT(*) AS n, {call} AS loud FROM rides GROUP BY city;")
    assert (caught.value.code, caught.value.others) == ("unknown_function", ())


def test_a_misspelt_aggregate_is_asked_about() -> None:
    with pytest.raises(StatementRefused, match="did you mean count"):
        query("CREATE TABLE n AS SELECT city, conut(fare) AS n FROM rides GROUP BY city;")


def test_the_refusal_to_group_a_table_with_windows_says_what_can_be_grouped() -> None:
    with pytest.raises(StatementRefused, match="group RIDES, which it is made of") as caught:
        query("CREATE TABLE s AS SELECT n, COUNT(*) AS m FROM hourly GROUP BY n;", RIDES + HOURLY)
    assert caught.value.code == "windowed_group"
    query("CREATE TABLE s WITH (DIALECT='KSQLDB') AS SELECT n, COUNT(*) AS m FROM hourly GROUP BY n;", RIDES + HOURLY)


def test_a_key_of_two_columns_needs_no_format_in_the_built_in_log() -> None:
    found = query("CREATE TABLE n AS SELECT city, meters, COUNT(*) AS n FROM rides GROUP BY city, meters;")
    assert found.relation.topic.key_format.name == "JSON"
    with pytest.raises(StatementRefused, match="KEY_FORMAT='JSON'"):
        query("CREATE TABLE n WITH (KEY_FORMAT='KAFKA') AS SELECT city, meters, COUNT(*) AS n FROM rides GROUP BY city, meters;")


def test_all_names_that_mean_nothing_are_reported_at_once() -> None:
    text = "CREATE STREAM s AS SELECT ctiy, uper(city) AS u, x.id FROM rides WHERE fair > 1 AND shout(fare) > CAST(id AS INTT);"
    with pytest.raises(StatementRefused) as caught:
        query(text)
    found = [(fault.code, text[slice(*fault.span or (0, 0))]) for fault in caught.value.all]
    assert found == [
        ("unknown_column", "ctiy"), ("unknown_function", "uper(city)"), ("unknown_relation", "x"), ("unknown_column", "fair"),
        ("unknown_function", "shout(fare)"), ("unknown_type", "INTT"),
    ]  # fmt: skip
    assert [fault.sentence.rpartition("did you mean ")[2] for fault in caught.value.all][:2] == ["CITY?", "upper?"]


def test_all_relations_that_there_are_not_are_reported_at_once() -> None:
    with pytest.raises(StatementRefused) as caught:
        query("CREATE STREAM s AS SELECT * FROM ridse r JOIN city c ON r.city = c.name;")
    assert [fault.sentence.rpartition("; ")[2] for fault in caught.value.all] == ["did you mean RIDES?", "did you mean CITIES?"]


def test_faults_of_properties_and_of_the_query_are_reported_at_once() -> None:
    text = "CREATE STREAM s WITH (TASK=2, START='nwo', TASKS='x', VALUE_FROMAT='JSON') AS SELECT ctiy FROM rides;"
    with pytest.raises(StatementRefused) as caught:
        query(text)
    assert [(each.code, text[slice(*each.span or (0, 0))]) for each in caught.value.all] == [
        ("unknown_property", "TASK=2"), ("property_malformed", "'nwo'"), ("property_malformed", "'x'"),
        ("unknown_property", "VALUE_FROMAT='JSON'"), ("unknown_column", "ctiy"),
    ]  # fmt: skip
    with pytest.raises(StatementRefused) as caught:
        query("CREATE STREAM s WITH (TASKS='x', DESIRED_STATE='PUASED', STATED='x') AS SELECT id, city FROM rides;")
    assert [each.code for each in caught.value.all] == ["property_malformed", "property_malformed", "unknown_property"]

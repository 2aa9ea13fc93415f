"""Statements as they are written, and as they are printed: every statement and every clause of the language."""

from __future__ import annotations

import pytest

from engine.sql.faults import SyntaxFault
from engine.sql.printing.statements import show
from engine.sql.statements.clauses import MAX_DIGITS
from engine.sql.statements.statements import parse_statement

DEFINITIONS = [
    ("create stream s (a int)", "CREATE STREAM s (a INT)"),
    ("CREATE STREAM s", "CREATE STREAM s"),
    (
        "create or replace source table if not exists t (id string primary key, b decimal(3, 1)) with (kafka_topic='t', 'x.y'=-1)",
        "CREATE OR REPLACE SOURCE TABLE IF NOT EXISTS t (id STRING PRIMARY KEY, b DECIMAL(3, 1)) WITH (kafka_topic = 't', 'x.y' = -1)",
    ),
    (
        "create stream s (k int key, h array<struct<key string, value bytes>> headers, g bytes header('x'))",
        "CREATE STREAM s (k INT KEY, h ARRAY<STRUCT<key STRING, value bytes>> HEADERS, g bytes HEADER('x'))",
    ),
    (
        "create stream s (a int array, b varchar(string), c struct<>)",
        "CREATE STREAM s (a ARRAY<INT>, b VARCHAR(STRING), c STRUCT<>)",
    ),
    (
        "create table t (id int primary key) history retention 1 day with (partitions=2)",
        "CREATE TABLE t (id INT PRIMARY KEY) HISTORY RETENTION 1 DAYS WITH (partitions = 2)",
    ),
    ("create stream `s t` as select * from a", 'CREATE STREAM "s t" AS SELECT * FROM a'),
    (
        "create or replace table if not exists t history retention 2 days with (tasks=4, x=true, y=null) as select a from b emit changes",
        "CREATE OR REPLACE TABLE IF NOT EXISTS t HISTORY RETENTION 2 DAYS WITH (tasks = 4, x = TRUE, y = NULL) AS SELECT a FROM b EMIT CHANGES",
    ),
    ("insert into s select a from b", "INSERT INTO s SELECT a FROM b"),
    ("insert into s with (query_id='q') select a from b", "INSERT INTO s WITH (query_id = 'q') SELECT a FROM b"),
    ("insert into s values (1, 'x', -2.5, null)", "INSERT INTO s VALUES (1, 'x', -2.5, NULL)"),
    (
        "insert into s (a, b) values (1, array[1]), (2, map('k' := struct(f := 1)))",
        "INSERT INTO s (a, b) VALUES (1, ARRAY[1]), (2, MAP('k' := STRUCT(f := 1)))",
    ),
    ("create type address as struct<street string, number int>", "CREATE TYPE address AS STRUCT<street STRING, number INT>"),
    ("create type if not exists a as int", "CREATE TYPE IF NOT EXISTS a AS INT"),
    (
        "create or replace function f(a int, b string) returns map<string, double> language python with (deterministic=true) as $$ x $$",
        "CREATE OR REPLACE FUNCTION f(a INT, b STRING) RETURNS MAP<STRING, DOUBLE> LANGUAGE PYTHON WITH (deterministic = TRUE) AS $$ x $$",
    ),
    ("create function f() returns int language python as 'a$$'", "CREATE FUNCTION f() RETURNS INT LANGUAGE PYTHON AS 'a$$'"),
    ("drop stream s", "DROP STREAM s"),
    ("drop table if exists t delete topic", "DROP TABLE IF EXISTS t DELETE TOPIC"),
    ("drop type if exists t", "DROP TYPE IF EXISTS t"),
    ("drop function f", "DROP FUNCTION f"),
    ("alter stream s add column a int, add b string", "ALTER STREAM s ADD COLUMN a INT, ADD COLUMN b STRING"),
    ("alter table t add column int", "ALTER TABLE t ADD COLUMN column INT"),
]
QUERIES = [
    ("select a, b as c, d e from s", "SELECT a, b AS c, d AS e FROM s"),
    ("select *, x.*, x.y->*, f(a)->b->* from s x", "SELECT *, x.*, x.y->*, f(a)->b->* FROM s AS x"),
    (
        "select a from s where b group by c, d having e limit 3",
        "SELECT a FROM s WHERE b GROUP BY c, d HAVING e LIMIT 3",
    ),
    ("select a from s group by (b, (c)) partition by d", "SELECT a FROM s GROUP BY b, (c) PARTITION BY d"),
    ("select a from s group by (b) + 1, c", "SELECT a FROM s GROUP BY (b) + 1, c"),
    ("select a from s partition by f(b, c)", "SELECT a FROM s PARTITION BY f(b, c)"),
    ("select a from s join t on s.a = t.a", "SELECT a FROM s JOIN t ON s.a = t.a"),
    (
        "select a from s inner join t x on a left join u as y on b right outer join v on c full join w on d",
        "SELECT a FROM s JOIN t AS x ON a LEFT JOIN u AS y ON b RIGHT JOIN v ON c FULL OUTER JOIN w ON d",
    ),
    (
        "select a from s join t within 1 hour on a join u within (1 second, 2 days) grace period 3 milliseconds on b",
        "SELECT a FROM s JOIN t WITHIN 1 HOURS ON a JOIN u WITHIN (1 SECONDS, 2 DAYS) GRACE PERIOD 3 MILLISECONDS ON b",
    ),
    (
        (
            "select a from s left join w grace period 1 hour unversioned late divert expired null hold until table time plus 5 seconds, "
            "at most 10 minutes, 1000 rows history complete unmatched when closed on a"
        ),
        (
            "SELECT a FROM s LEFT JOIN w GRACE PERIOD 1 HOURS UNVERSIONED LATE DIVERT EXPIRED NULL HOLD UNTIL TABLE TIME PLUS 5 SECONDS, "
            "AT MOST 10 MINUTES, 1000 ROWS HISTORY COMPLETE UNMATCHED WHEN CLOSED ON a"
        ),
    ),
    (
        "select a from s join w late late join expired drop hold until caught up, at most 1 minute unmatched eager on a",
        "SELECT a FROM s JOIN w AS late LATE JOIN EXPIRED DROP HOLD UNTIL CAUGHT UP, AT MOST 1 MINUTES UNMATCHED EAGER ON a",
    ),
    ("select a from s join w unversioned on a", "SELECT a FROM s JOIN w AS unversioned ON a"),
    ("select a from s join w history history latest on a", "SELECT a FROM s JOIN w AS history HISTORY LATEST ON a"),
    ("select a from s window tumbling (size 5 seconds)", "SELECT a FROM s WINDOW TUMBLING (SIZE 5 SECONDS)"),
    (
        "select a from s window w hopping (size 2 days, advance by 1 day, retention 3 days, grace period 0 seconds)",
        "SELECT a FROM s WINDOW w HOPPING (SIZE 2 DAYS, ADVANCE BY 1 DAYS, RETENTION 3 DAYS, GRACE PERIOD 0 SECONDS)",
    ),
    (
        "select a from s window session (5 minutes, grace period 1 minute)",
        "SELECT a FROM s WINDOW SESSION (5 MINUTES, GRACE PERIOD 1 MINUTES)",
    ),
    ("select a from s window sliding (difference 5 minutes)", "SELECT a FROM s WINDOW SLIDING (DIFFERENCE 5 MINUTES)"),
    ("select a from s emit final keep open", "SELECT a FROM s EMIT FINAL KEEP OPEN"),
    (
        "select a from s emit changes every 30 seconds event driven buffer 10 rows, 64 mb on full emit idle after 5 minutes",
        "SELECT a FROM s EMIT CHANGES EVERY 30 SECONDS EVENT DRIVEN BUFFER 10 ROWS, 64000000 BYTES ON FULL EMIT IDLE AFTER 5 MINUTES",
    ),
    (
        "select a from s emit final idle after 5 minutes clock slowest",
        "SELECT a FROM s EMIT FINAL IDLE AFTER 5 MINUTES CLOCK SLOWEST",
    ),
    ("select a from s emit changes clock fastest", "SELECT a FROM s EMIT CHANGES CLOCK FASTEST"),
    (
        "select a from s emit changes wait 5 minutes buffer 2 kb on full stop",
        "SELECT a FROM s EMIT CHANGES WAIT 5 MINUTES BUFFER 2000 BYTES ON FULL STOP",
    ),
    ("select a from s emit at window end then changes", "SELECT a FROM s EMIT AT WINDOW END THEN CHANGES"),
    ("select a from s emit all", "SELECT a FROM s EMIT ALL"),
    ("select a from s emit where b", "SELECT a FROM s AS emit WHERE b"),
    ("select a from s emit emit changes", "SELECT a FROM s AS emit EMIT CHANGES"),
    (
        "select a from w for system_time as of '2013-01-01' x where b",
        "SELECT a FROM w AS x FOR SYSTEM_TIME AS OF '2013-01-01' WHERE b",
    ),
    ("select a from w as of timestamp '2013-01-01'", "SELECT a FROM w FOR SYSTEM_TIME AS OF CAST('2013-01-01' AS TIMESTAMP)"),
    ("select a from w as of", "SELECT a FROM w AS of"),
    ("select a from w x for system_time from 1 to 2 + 3", "SELECT a FROM w AS x FOR SYSTEM_TIME FROM 1 TO 2 + 3"),
    ("select a from s wait for position 'p' up to 5 seconds", "SELECT a FROM s WAIT FOR POSITION 'p' UP TO 5 SECONDS"),
    ("select a from s limit 1 wait for position 'p'", "SELECT a FROM s LIMIT 1 WAIT FOR POSITION 'p'"),
    ("select transform(a, (k, v) => k + v, x => x[1]->b) from s", "SELECT transform(a, (k, v) => k + v, x => x[1]->b) FROM s"),
    ("select timestampadd(days, 1, t), left(a, 1) from s", "SELECT timestampadd(days, 1, t), left(a, 1) FROM s"),
    ("select 1a, 2_b@c, 1e3, 1E, a.1b, .5, 1. from 1s", "SELECT 1a, 2_b@c, 1e3, 1E, a.1b, 0.5, 1. FROM 1s"),
    (
        "select source, key, values_, emit, final, type, size, query from stream",
        "SELECT source, key, values_, emit, final, type, size, query FROM stream",
    ),
    ("select a -- here ; and '\n from /* there */ s", "SELECT a FROM s"),
]
OTHERS = [
    ("terminate all", "TERMINATE ALL"),
    ("terminate CSAS_A_1", "TERMINATE CSAS_A_1"),
    ("pause q", "PAUSE q"),
    ("resume `q`", 'RESUME "q"'),
    ("list streams extended", "SHOW STREAMS EXTENDED"),
    ("show tables", "SHOW TABLES"),
    ("show all topics extended", "SHOW ALL TOPICS EXTENDED"),
    ("show queries", "SHOW QUERIES"),
    ("show functions", "SHOW FUNCTIONS"),
    ("show properties", "SHOW PROPERTIES"),
    ("show types", "SHOW TYPES"),
    ("show variables", "SHOW VARIABLES"),
    ("show source connectors", "SHOW CONNECTORS"),
    ("show connector plugins", "SHOW CONNECTOR PLUGINS"),
    ("show late records of q limit 5", "SHOW LATE RECORDS OF q LIMIT 5"),
    ("describe s extended", "DESCRIBE s EXTENDED"),
    ("describe streams extended", "DESCRIBE STREAMS EXTENDED"),
    ("describe tables", "DESCRIBE TABLES"),
    ("describe function sum", "DESCRIBE FUNCTION sum"),
    ("describe function", "DESCRIBE function"),
    ("explain q", "EXPLAIN q"),
    ("explain select a from s", "EXPLAIN SELECT a FROM s"),
    ("explain create table t as select a from s", "EXPLAIN CREATE TABLE t AS SELECT a FROM s"),
    ("explain why q key ('a', 1) at timestamp '2013-01-01'", "EXPLAIN WHY q KEY ('a', 1) AT CAST('2013-01-01' AS TIMESTAMP)"),
    ("explain why", "EXPLAIN why"),
    ("print 'a-b' from beginning interval 2 limit 3", "PRINT 'a-b' FROM BEGINNING INTERVAL 2 LIMIT 3"),
    ("print t sample 2", "PRINT t INTERVAL 2"),
    ("set 'auto.offset.reset' = 'earliest'", "SET 'auto.offset.reset' = 'earliest'"),
    ("unset 'x'", "UNSET 'x'"),
    ("define a = 'it''s'", "DEFINE a = 'it''s'"),
    ("undefine a", "UNDEFINE a"),
    ("assert topic t", "ASSERT TOPIC t"),
    (
        "assert not exists topic 't' with (partitions=1) timeout 3 seconds",
        "ASSERT NOT EXISTS TOPIC 't' WITH (partitions = 1) TIMEOUT 3 SECONDS",
    ),
    ("assert values s (a, b) values (1, 2)", "ASSERT VALUES s (a, b) VALUES (1, 2)"),
    ("assert null values s (a) key (1)", "ASSERT NULL VALUES s (a) KEY (1)"),
    ("assert table t (a int primary key) with (x=1)", "ASSERT TABLE t (a INT PRIMARY KEY) WITH (x = 1)"),
]
REFUSED = [
    ("create source connector if not exists c with (a='b')", "CREATE SOURCE CONNECTOR"),
    ("create sink connector c with (a='b')", "CREATE SINK CONNECTOR"),
    ("drop connector if exists c", "DROP CONNECTOR"),
    ("describe connector c", "DESCRIBE CONNECTOR"),
    ("assert schema subject s id 3", "ASSERT SCHEMA"),
    ("assert not exists schema id 3", "ASSERT SCHEMA"),
    ("alter system 'a' = 'b'", "ALTER SYSTEM"),
    ("run script 'a.sql'", "RUN SCRIPT"),
]
STATEMENTS = [*DEFINITIONS, *QUERIES, *OTHERS]


@pytest.mark.parametrize(("text", "printed"), STATEMENTS, ids=[text for text, _ in STATEMENTS])
def test_a_statement_is_printed_in_one_way_and_read_again_as_it_was(text: str, printed: str) -> None:
    tree = parse_statement(text)
    assert show(tree) == printed
    assert parse_statement(printed) == tree


@pytest.mark.parametrize(("text", "words"), REFUSED, ids=[text for text, _ in REFUSED])
def test_what_cannot_be_had_is_read_and_told_by_its_first_words(text: str, words: str) -> None:
    assert show(parse_statement(text)) == words


def test_nodes_of_a_statement_know_where_they_stood() -> None:
    text = "create stream a as select  x+1 y from b  window tumbling (size  1 hour) where c emit changes"
    spans = {text[slice(*node.span)] for node in parse_statement(text).walk() if node.span is not None}
    assert {
        text,
        "select  x+1 y from b  window tumbling (size  1 hour) where c emit changes",
        "x+1 y",
        "x+1",
        "1 hour",
        "c",
    } <= spans


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a FROM s LIMIT {}",
        "SHOW LATE RECORDS OF q LIMIT {}",
        "PRINT t LIMIT {}",
        "SELECT a FROM s WINDOW TUMBLING (SIZE {} DAYS) GROUP BY a EMIT CHANGES",
    ],
)
def test_a_number_that_counts_has_few_digits(text: str) -> None:
    parse_statement(text.format("9" * MAX_DIGITS))
    with pytest.raises(SyntaxFault) as caught:
        parse_statement(text.format("9" * (MAX_DIGITS + 1)))
    assert caught.value.expected == "a smaller number"

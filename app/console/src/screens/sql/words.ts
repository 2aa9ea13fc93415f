/** Words of the language, for colours and completion. What they mean is the service's business. */

export const KEYWORDS = (
  "ADD ADVANCE AFTER ALL ALTER AND AS ASSERT AT BEFORE BETWEEN BUFFER BY BYTES CASE CAST CAUGHT CHANGES CLOSED COLUMN COMPLETE CREATE DEFINE DELETE DESCRIBE DIFFERENCE DISTINCT DIVERT DROP " +
  "EAGER ELSE EMIT END EVERY EXISTS EXPIRED EXPLAIN EXTENDED FINAL FOR FROM FULL FUNCTION GRACE GROUP HAVING HISTORY HOLD HOPPING IDLE IF IN INNER INSERT INTO IS JOIN KEEP KEY LANGUAGE LATE LEFT LIKE LIMIT LIST MOST " +
  "NOT NULL OF ON OPEN OR OUTER PARTITION PAUSE PERIOD PLUS POSITION PRIMARY PRINT PROPERTIES PYTHON QUERIES QUERY RECORDS REPLACE RESUME RETENTION RETURNS RIGHT ROWS SELECT SESSION SET SHOW SIZE SLIDING SOURCE STREAM STREAMS SYSTEM_TIME " +
  "TABLE TABLES TERMINATE THEN TIME TIMES TO TOPIC TOPICS TUMBLING TYPE TYPES UNDEFINE UNMATCHED UNSET UNTIL UNVERSIONED UP VALUES VARIABLES VERSIONED WAIT WHEN WHERE WHY WINDOW WITH WITHIN " +
  "MILLISECOND MILLISECONDS SECOND SECONDS MINUTE MINUTES HOUR HOURS DAY DAYS"
).split(" ");

export const TYPES = "BOOLEAN INT INTEGER BIGINT DOUBLE DECIMAL STRING VARCHAR BYTES DATE TIME TIMESTAMP ARRAY MAP STRUCT".split(" ");

/** Beginnings of statements, with what mostly follows. `#` is where the cursor goes. */
export const SNIPPETS: { label: string; detail: string; template: string }[] = [
  { label: "SELECT … FROM", detail: "rows as they are now", template: "SELECT ${*} FROM ${name} LIMIT ${20};" },
  { label: "SELECT … EMIT CHANGES", detail: "rows as they come", template: "SELECT ${*} FROM ${name} EMIT CHANGES;" },
  {
    label: "CREATE TABLE … AS",
    detail: "a query that keeps a table",
    template: "CREATE TABLE ${result} AS\n  SELECT ${key}, COUNT(*) AS n\n  FROM ${stream}\n  GROUP BY ${key}\n  EMIT CHANGES;",
  },
  {
    label: "CREATE TABLE … WINDOW",
    detail: "final results by window",
    template:
      "CREATE TABLE ${result} AS\n  SELECT ${key}, COUNT(*) AS n\n  FROM ${stream}\n  WINDOW TUMBLING (SIZE ${1 HOUR}, GRACE PERIOD ${10 MINUTES})\n  GROUP BY ${key}\n  EMIT FINAL;",
  },
  {
    label: "CREATE STREAM … JOIN",
    detail: "each record with the row of its time",
    template:
      "CREATE STREAM ${result} AS\n  SELECT s.*, t.${column}\n  FROM ${stream} s\n  LEFT JOIN ${table} t GRACE PERIOD ${1 HOUR} ON s.${key} = t.${key}\n  EMIT CHANGES;",
  },
  { label: "INSERT INTO … VALUES", detail: "append records", template: "INSERT INTO ${stream} (${columns}) VALUES (${values});" },
  { label: "SHOW STREAMS", detail: "what there is", template: "SHOW STREAMS;" },
  { label: "SHOW TABLES", detail: "what there is", template: "SHOW TABLES;" },
  { label: "SHOW QUERIES", detail: "what runs", template: "SHOW QUERIES;" },
  { label: "DESCRIBE", detail: "columns of a stream or table", template: "DESCRIBE ${name};" },
  { label: "SHOW LATE RECORDS OF", detail: "what came too late", template: "SHOW LATE RECORDS OF ${query} LIMIT ${20};" },
  { label: "EXPLAIN WHY", detail: "why a row is as it is", template: "EXPLAIN WHY ${query} KEY (${'key'}) AT ${'2013-01-01T10:44:00Z'};" },
];

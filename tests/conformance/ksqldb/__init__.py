"""ksqlDB's own tests: scripts of SQL run in this process over records given by hand."""

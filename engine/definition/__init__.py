"""What a user may say: types, durations, expressions, relations and queries. Knows no plan, no Spark, no I/O, no clock."""

"""What a user may say: relations, queries, and by kind: sources, deliveries, connections. Knows no plan, no Spark, no I/O, no clock."""

"""What exists, and its edits: relations, queries, deliveries, connections, drivers, earlier commits."""

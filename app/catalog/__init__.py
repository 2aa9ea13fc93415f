"""The catalog and its edits: relations, queries, deliveries, connections, drivers, earlier commits."""

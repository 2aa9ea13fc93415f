"""The built-in log: feeds of record batches in the database; the home of results, and a connector for sources."""

"""Aggregates as mergeable partials; running aggregation of streams, aggregation of tables with undo."""

"""Joins: stream–table with grace and hold, stream–stream, table–table, foreign-key."""

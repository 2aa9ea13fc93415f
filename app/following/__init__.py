"""Following changes: exactly once behind a cursor, or behind a snapshot."""

"""Bodies of appended records: how a body is cut into records, and their readers."""

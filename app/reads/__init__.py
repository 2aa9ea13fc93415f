"""Pull reads: rows and records."""

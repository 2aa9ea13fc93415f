"""The routes of queries: put, look at, list, start, stop, delete, dry run."""

"""The routes of queries: put, get, list, start, stop, delete, dry run."""

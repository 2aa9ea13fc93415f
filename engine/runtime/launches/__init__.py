"""A query that was launched: where it resumes, what it commits, how it ends."""

"""A query at work: planning of batches, worker tasks, limits."""

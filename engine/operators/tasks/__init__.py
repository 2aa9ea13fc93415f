"""Tasks: the total order of a query's records with its times, and the chain of a task's operators."""

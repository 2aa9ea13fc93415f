"""Earlier commits of a query: forks and rewinds."""

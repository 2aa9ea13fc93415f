"""Where the batches of a query end."""

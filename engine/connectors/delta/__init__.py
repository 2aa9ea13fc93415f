"""Delta tables as an output of results."""

"""Functions of JSON in texts."""

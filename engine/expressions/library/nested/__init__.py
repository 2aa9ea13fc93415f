"""Functions of arrays and maps."""

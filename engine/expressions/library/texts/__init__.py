"""Functions of texts and bytes."""

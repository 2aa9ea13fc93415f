"""The types of columns."""

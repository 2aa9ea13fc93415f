"""Delimited text, and where the records of text files end."""

"""What an answer looks like: problems, JSON and Arrow, event streams."""

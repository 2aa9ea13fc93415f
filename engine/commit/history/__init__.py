"""Retained commits: rewinding, forking, promoting, and the collection of segments."""

"""Structures made of immutable sorted segments: versions by key and time, latest rows, queues; and searching them."""

"""Connections to our database, names in it, COPY and arrays, and the fence of a launch."""

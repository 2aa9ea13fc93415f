"""Operators over frames: exact, vectorised, and free of Spark, I/O, clocks and threads."""

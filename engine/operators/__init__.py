"""What each operator does: exact, vectorised, free of Spark, I/O, clocks and threads."""

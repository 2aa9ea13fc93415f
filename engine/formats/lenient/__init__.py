"""JSON as ksqlDB reads it: more lenient than strict reading, but without guesses."""

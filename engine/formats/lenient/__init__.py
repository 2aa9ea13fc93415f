"""JSON as ksqlDB reads it: more than strict reading allows, and nothing that has to be guessed."""

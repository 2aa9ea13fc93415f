"""Streaming queries of Spark that run the batches of any number of our queries."""

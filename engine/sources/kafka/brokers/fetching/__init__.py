"""Fetching a topic's records into columns of bytes; if librdkafka can be called directly, without a Python object for each record."""

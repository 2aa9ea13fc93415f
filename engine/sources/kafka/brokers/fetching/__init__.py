"""Fetching records of a topic: partitions to columns of bytes, without a Python object for each record where librdkafka can be called itself."""

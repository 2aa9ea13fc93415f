"""Clients of brokers: asking about a topic, and reading on from its partitions."""

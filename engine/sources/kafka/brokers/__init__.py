"""Clients of brokers: questions about a topic, and reading of its partitions."""

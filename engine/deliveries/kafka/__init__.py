"""Results in a topic of Kafka, exactly once by transactions."""

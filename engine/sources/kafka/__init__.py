"""Topics of Kafka as a connector for sources."""

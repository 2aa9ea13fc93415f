"""Change events of Debezium: envelopes of JSON or Avro to upserts and deletes."""

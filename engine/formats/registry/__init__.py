"""Schema registries that speak Confluent's protocol."""

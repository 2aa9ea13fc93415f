"""The library: streaming operators with event-time semantics. Knows nothing of HTTP, control tables or processes."""

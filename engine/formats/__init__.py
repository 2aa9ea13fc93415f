"""Keys and values of topics' records: bytes to frames and back, as leniently as ksqlDB."""

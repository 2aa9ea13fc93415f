"""Keys and values of records as topics hold them: bytes to frames and back, with the leniency of ksqlDB."""

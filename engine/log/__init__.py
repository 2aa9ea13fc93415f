"""The log of records: blocks in Postgres, numbers of rows, ends of many logs at once."""

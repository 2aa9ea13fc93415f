"""The database: pools, tables, the version of the schema, the embedded Postgres, notifications."""

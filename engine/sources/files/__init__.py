"""Directories of ndjson, csv or parquet files as a connector for sources."""

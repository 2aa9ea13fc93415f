"""Columns: frames with service columns, hashes of keys, sizes of rows, slices, nested columns."""

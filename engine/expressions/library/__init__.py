"""The functions that an expression may call: one entry each."""

"""One batch, one transaction: rows, log, state, counters."""

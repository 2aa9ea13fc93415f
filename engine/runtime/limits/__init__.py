"""The size of a query's batches, the limits of their time, and the parts of this time."""

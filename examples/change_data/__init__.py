"""A shop's database as versioned tables, joined with its clicks; explained in docs/guides/change-data.md."""

"""A shop's database as versioned tables, joined with its clicks; explained in docs/change-data.md."""

"""Many definitions at once, compared with what is registered."""

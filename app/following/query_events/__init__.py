"""What happens to a query, as an event stream."""

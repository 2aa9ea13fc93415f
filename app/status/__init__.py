"""What queries, drivers and the service do."""

"""The database behind the service: every SQL statement of the control plane, of pull reads and of appends."""

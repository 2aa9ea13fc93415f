"""Results that leave the service: the port, and one entry for each kind of target."""

"""Where records come from: the port, and one folder for each connector."""

"""The drivers, and the settings in force."""

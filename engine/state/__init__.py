"""The state of tasks: sorted structures over immutable segments, and the places where segments are stored."""

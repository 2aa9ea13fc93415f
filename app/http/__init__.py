"""HTTP: requests are parsed, answers are written, ports are guarded. Knows no feature."""
